"""Draw figures from tables of results, one function per figure. Means are drawn with 95% intervals over seeds.

The last lines of a figure (its small print) name the run, say over how many seeds the means are taken, and how many
members (models) or values are left out. Arguments named `members`, `metrics`, `analysis` and `baselines` are the tables
of a run (see docs/run-folder.md), and `chance` is the accuracy of guessing. The page of an experiment
(`reports/pages`) chooses which figures its report shows.

>>> figure = accuracy_by_sigma(run.members, run.metrics, run_name="lst-quick")
>>> save(figure, Path("figures/accuracy_by_sigma.png"))
"""

from placecode.reports.figures.accuracy import (
    accuracy_by_sigma,
    before_and_after,
    beside_published,
    conditions_by_sigma,
    noise_curves,
)
from placecode.reports.figures.base import BLUE, INK, MUTED, SIGMA, SPLITS, TEXT, VERMILLION, thinned
from placecode.reports.figures.brain import regions_on_brain
from placecode.reports.figures.channels import error_by_sigma, error_curves, heatmap_by_settings
from placecode.reports.figures.curves import curves_by_name, curves_by_setting, learning_curves, slingshots
from placecode.reports.figures.encodings import accuracy_by_name, effect_of_dropout
from placecode.reports.figures.fit import channels_on_map, maps_by_method, sigma_choice
from placecode.reports.figures.knobs import accuracy_by_setting, causes
from placecode.reports.figures.maps import attention_maps, error_maps, maps_as_pictures, similarity_maps, token_maps
from placecode.reports.figures.output import save, svg_text
from placecode.reports.figures.relations import forest, relation_panels
from placecode.reports.figures.scales import default_scales
from placecode.reports.figures.structure import (
    measure_by_name,
    measures_by_variant,
    networks_by_sigma,
    similarity_by_sigma,
    structure_by_sigma,
)

__all__ = [
    "BLUE",
    "INK",
    "MUTED",
    "SIGMA",
    "SPLITS",
    "TEXT",
    "VERMILLION",
    "accuracy_by_name",
    "accuracy_by_setting",
    "accuracy_by_sigma",
    "attention_maps",
    "before_and_after",
    "beside_published",
    "causes",
    "channels_on_map",
    "conditions_by_sigma",
    "curves_by_name",
    "curves_by_setting",
    "default_scales",
    "effect_of_dropout",
    "error_by_sigma",
    "error_curves",
    "error_maps",
    "forest",
    "heatmap_by_settings",
    "learning_curves",
    "maps_as_pictures",
    "maps_by_method",
    "measure_by_name",
    "measures_by_variant",
    "networks_by_sigma",
    "noise_curves",
    "regions_on_brain",
    "relation_panels",
    "save",
    "sigma_choice",
    "similarity_by_sigma",
    "similarity_maps",
    "slingshots",
    "structure_by_sigma",
    "svg_text",
    "thinned",
    "token_maps",
]

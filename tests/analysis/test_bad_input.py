"""Functions of analysis refuse arrays that do not fit, with the name of the argument and what it was."""

from collections.abc import Callable

import numpy as np
import pytest
from helpers.planted import GROUPS
from helpers.refusal import refused

from placecode.analysis import (
    agreement,
    alignment,
    attention,
    baselines,
    behaviour,
    connectivity,
    geometry,
    modules,
    nulls,
    partitions,
    places,
    robustness,
    stats,
    targets,
)

RNG = np.random.default_rng(0)
EYE, ONES, NAN = np.eye(4), np.ones((4, 4)), np.full((4, 4), np.nan)
TOKENS = np.arange(16)
PE = RNG.normal(size=(16, 3))
VALUES = RNG.normal(size=(30, 9))
TRAIN, HIDDEN = RNG.normal(size=(50, 4, 2)), np.eye(4, dtype=bool)
SIMILAR, PLACES = RNG.normal(size=(24, 24)), RNG.normal(size=(24, 3))
STATISTIC = {"": lambda drawn: modules.modularity(drawn, GROUPS)}
LINEAR = baselines.Linear().fit(TRAIN)
COMPARISONS = (alignment.procrustes_raw, alignment.procrustes, alignment.rsa, alignment.cka, alignment.procrustes_test)
LABELLED = (modules.modularity, modules.segregation, modules.silhouette, modules.neighbor_agreement)
ONE_TABLE = (stats.between_correlation, stats.within_correlation)

CASES: list[tuple[str, object, Callable, tuple]] = [
    # agreement, alignment
    ("pes", (1, 1, 4, 4), agreement.channel_confidence, (NAN[None, None],)),
    ("pes", (1, 1, 4, 4), agreement.common_embedding, (NAN[None, None],)),
    *(("pe", (3, 3), measure, (np.eye(3), EYE)) for measure in COMPARISONS),
    *(("pe and target", (3,), measure, (np.ones(3), np.eye(3))) for measure in COMPARISONS),
    *(("pe and target", (3,), f, (np.ones(3),)) for f in (geometry.norm, geometry.effective_dimension, geometry.mds)),
    ("target", (2, 4, 4), alignment.procrustes_test, (EYE, np.ones((2, 4, 4)))),
    ("pe", (16, 3), alignment.views, (PE,)),
    ("count", 0, alignment.procrustes_test, (EYE, EYE, 0)),
    ("labels", (5,), alignment.probe, (PE, np.arange(5), TOKENS)),
    ("folds", (), alignment.probe, (PE, TOKENS, 4)),
    ("folds", [0.0] * 16, alignment.probe, (PE, TOKENS, np.zeros(16))),
    ("ridge", 0, alignment.probe, (PE, TOKENS, TOKENS, 0)),
    # attention, behaviour, robustness
    ("positions", (3,), attention.ideal_map, ([0, 1, 2],)),
    *(("maps", shape, attention.cosine, (np.ones(shape), EYE)) for shape in ((3, 3), (4,), (4, 3))),
    ("maps", (3, 3), attention.correlation, (np.ones((3, 3)), EYE)),
    ("conditions", (2,), behaviour.by_condition, (np.zeros((2, 3)), ["a", "b"])),
    ("groups", (2,), behaviour.agreement_with_others, (np.zeros((3, 4)), ["a", "b"])),
    ("answers", (4,), behaviour.agreement, (np.zeros(4),)),
    ("places", [0, 4], behaviour.error_rate, ([True, False], [0, 4], 4)),
    ("places", [-1, 0], behaviour.error_rate, ([True, False], [-1, 0], 4)),
    ("places", (1,), behaviour.error_rate, ([True, False], [0], 4)),
    *(
        ("levels", levels, robustness.tolerance, ([0.9, 0.8, 0.7], levels, 0.25))
        for levels in ([0.0, 0.1], [0, 0.2, 0.1], [0, 0.1, 0.1])
    ),
    ("accuracy", (), robustness.retained, (0.9, 0.25)),
    ("accuracy", (3, 0), robustness.retained, (np.zeros((3, 0)), 0.25)),
    # baselines
    ("ridge", -1, baselines.Linear, (-1,)),
    ("", None, baselines.Linear().predict, (TRAIN[:4], HIDDEN)),  # not fitted
    ("", None, baselines.Linear().fit, (np.where(np.arange(4)[:, None] == 2, np.nan, TRAIN),)),
    ("", None, baselines.Linear().fit, (np.where(np.arange(4)[:, None] == 2, 0.1, TRAIN),)),
    ("values", (9, 8), baselines.Linear().fit, (TRAIN[:9],)),
    *(("values", x.shape, baselines.Linear().fit, (x,)) for x in (TRAIN[0, 0], TRAIN[:, :1])),
    ("share", 1.0, baselines.Linear().fit, (TRAIN, 0, 1.0)),
    *(("values", x.shape, LINEAR.predict, (x, HIDDEN)) for x in (TRAIN[:4, :3], TRAIN[:4, :, 0])),
    ("hidden", ("float64", (4, 4)), LINEAR.predict, (TRAIN[:4], HIDDEN.astype(float))),
    ("", None, LINEAR.predict, (np.full((4, 4, 2), np.nan), HIDDEN)),
    ("hidden", ("bool", (3, 4)), baselines.errors, (TRAIN[:4], TRAIN[:4], HIDDEN[:3])),
    ("predictions", (3, 4, 2), baselines.errors, (TRAIN[:3], TRAIN[:4], HIDDEN)),
    ("", None, baselines.mse, (EYE, EYE, np.zeros((4, 4), bool))),
    ("components", 0, baselines.Pca, (0,)),
    ("components", 8, baselines.Pca(8).fit, (TRAIN,)),
    ("examples", 10, baselines.Ridge, (10,)),
    ("examples", 10, baselines.Trees, (10,)),
    ("trees", 0, baselines.Trees, (200, 0)),
    ("channels", [5], baselines.Trees(channels=[5]).fit, (TRAIN,)),
    # connectivity
    *(
        ("", None, measure, ([VALUES, np.where(np.arange(9) == 3, np.nan, VALUES)],))
        for measure in (connectivity.correlation, connectivity.mutual_information, connectivity.partial_correlation)
    ),
    ("", None, connectivity.correlation, (np.where(np.arange(9) == 3, 0.1, VALUES),)),
    ("values", (9, 9), connectivity.correlation, (VALUES[:9],)),
    ("values", (30,), connectivity.correlation, (VALUES[:, 0],)),
    ("values", [(30, 9), (30, 4)], connectivity.correlation, ([VALUES, VALUES[:, :4]],)),
    ("values", [], connectivity.correlation, ([],)),
    ("bins", 1, connectivity.mutual_information, (VALUES, 1)),
    *(("matrix", x.shape, connectivity.mds_embedding, (x, 2)) for x in (ONES[:3], np.triu(ONES), NAN, ONES[0])),
    ("matrix", (3, 4), connectivity.spectral_clusters, (ONES[:3], 2)),
    ("", None, connectivity.mds_embedding, (2 * EYE, 2)),
    *(("k", k, connectivity.mds_embedding, (EYE, k)) for k in (0, 5, 1.5)),
    ("k", 5, connectivity.spectral_clusters, (EYE, 5)),
    ("k", 5, connectivity.pca_embedding, (VALUES[:, :4], 5)),
    # geometry, places, targets
    ("end", (2, 3, 2), geometry.moved, (np.ones((1, 3, 2)), np.ones((2, 3, 2)))),
    ("places and onto", ((4, 2), (5, 2)), geometry.align_map, (np.ones((4, 2)), np.ones((5, 2)))),
    *(
        ("positions", x.shape, places.neighbors_in_space, (x,))
        for x in (np.zeros(4), np.zeros((0, 2)), np.zeros((3, 0)), NAN)
    ),
    *(("positions", x.shape, targets.targets, (x, 8)) for x in (np.zeros(4), NAN)),
    *(("positions", x.shape, targets.related, (x,)) for x in (np.zeros(4), NAN, np.zeros((0, 2)))),
    ("positions", (5,), places.procrustes_r2, (np.zeros(5), np.zeros(5))),
    ("placed", (5, 3), places.procrustes_r2, (np.zeros((5, 3)), np.zeros((5, 2)))),
    ("related", ("bool", (3, 3)), modules.related_neighbor_agreement, (EYE, np.ones((3, 3), bool))),
    ("related", ("float64", (4, 4)), modules.related_neighbor_agreement, (EYE, ONES)),
    ("similarity", (4, 3), modules.related_neighbor_agreement, (np.zeros((4, 3)), ONES == 1)),
    ("similarity", (2, 3, 3), places.isomap_embedding, (np.zeros((2, 3, 3)),)),
    # modules, partitions, nulls
    *(("labels", ("int64", (5,)), measure, (SIMILAR, GROUPS[:5])) for measure in LABELLED),
    ("labels", ("float64", (24,)), modules.modularity, (SIMILAR, GROUPS.astype(float))),
    ("labels", ("int64", ()), modules.modularity, (SIMILAR, 4)),
    ("labels", -3, modules.modularity, (SIMILAR, GROUPS - 3)),
    ("labels", ("int64", (5,)), partitions.ari, (GROUPS, GROUPS[:5])),
    *(("similarity", (24, 5), measure, (SIMILAR[:, :5], GROUPS)) for measure in LABELLED),
    ("similarity", (5, 24), nulls.label_null, (modules.modularity, SIMILAR[:5], GROUPS)),
    ("partner", ("int64", (2,)), modules.mirror_agreement, (SIMILAR, [1, 0])),
    ("partner", list(range(24)), modules.mirror_agreement, (SIMILAR, np.arange(24))),
    ("partner", (GROUPS + 24).tolist(), modules.mirror_agreement, (SIMILAR, GROUPS + 24)),
    *(
        ("coordinates", x.shape, modules.coordinate_agreement, (SIMILAR, x))
        for x in (PLACES[:5], PLACES[:, 0], PLACES * np.nan)
    ),
    *(
        ("coordinates", x.shape, nulls.smooth_nulls, (STATISTIC, SIMILAR, x))
        for x in (PLACES[:5], PLACES[0], np.zeros((24, 3)), PLACES * np.inf)
    ),
    ("a and b", ((24, 24), (5, 5)), modules.matrix_correlation, (SIMILAR, SIMILAR[:5, :5])),
    ("k", 0, partitions.clusters, (SIMILAR, 0)),
    ("k", 25, partitions.clusters, (SIMILAR, 25)),
    ("labels", (9,), nulls.label_null, (modules.modularity, SIMILAR, GROUPS[:9])),
    ("labels", (), nulls.label_null, (modules.modularity, SIMILAR, 3)),
    ("draws", 0, nulls.label_null, (modules.modularity, SIMILAR, GROUPS, 0)),
    ("draws", 0, nulls.smooth_nulls, (STATISTIC, SIMILAR, PLACES, 0)),
    ("hemispheres", (5,), lambda: nulls.smooth_nulls(STATISTIC, SIMILAR, PLACES, 9, hemispheres=GROUPS[:5]), ()),
    ("restarts", 0, lambda: partitions.best_partition(SIMILAR, restarts=0), ()),
    *(
        ("orders", x.shape, nulls.matrix_null, (SIMILAR, SIMILAR, x))
        for x in (np.zeros((5, 24), int), np.arange(24), np.arange(9)[None], np.arange(24.0)[None])
    ),
    ("matrix", (5, 5), nulls.matrix_null, (SIMILAR, SIMILAR[:5, :5], nulls.shuffles(GROUPS, 5))),
    # stats
    *(("all arrays", [(3, 4), (3, 1)], f, (np.ones((3, 4)), np.ones((3, 1)))) for f in (stats.spearman, *ONE_TABLE)),
    *(("all arrays", [(4,), (4,)], f, (ONES[0], ONES[0])) for f in (*ONE_TABLE, stats.within_permutation_p)),
    ("x and y", (2, 3, 4), stats.within_permutation_p, (np.ones((2, 3, 4)), np.ones((2, 3, 4)))),
    ("p", [0.1, 1.5], stats.fdr, ([0.1, 1.5],)),
]


@pytest.mark.parametrize(("name", "given", "function", "arguments"), CASES)
def test_bad_input_is_refused(name, given, function, arguments) -> None:
    error = refused(function, *arguments)
    assert (error.name, error.given) == (name, given)

"""Every function of analysis refuses arrays that do not fit, with the name of the argument in the error."""

from collections.abc import Callable

import numpy as np
import pytest
from helpers.planted import GROUPS

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
from placecode.errors import BadInput

RNG = np.random.default_rng(0)
EYE, ONES, NAN = np.eye(4), np.ones((4, 4)), np.full((4, 4), np.nan)
PE = RNG.normal(size=(16, 3))
VALUES = RNG.normal(size=(30, 9))
TRAIN, HIDDEN = RNG.normal(size=(50, 4, 2)), np.eye(4, dtype=bool)
W, PLACES = RNG.normal(size=(24, 24)), RNG.normal(size=(24, 3))
STATISTIC = {"": lambda drawn: modules.modularity(drawn, GROUPS)}


def without_column(value: float) -> np.ndarray:
    broken = VALUES.copy()
    broken[:, [1, 3]] = value
    return broken


CASES: dict[str, list[Callable[[], object]]] = {
    # agreement, alignment
    "pes must be": [
        lambda: agreement.channel_confidence(NAN[None, None]),
        lambda: agreement.common_embedding(NAN[None, None]),
    ],
    "as many tokens as the target": [
        lambda f=f: f(np.eye(3), EYE)
        for f in (alignment.procrustes_raw, alignment.procrustes, alignment.rsa, alignment.cka, alignment.permuted)
    ],
    "(tokens, features)": [
        *(
            lambda f=f: f(np.ones(3), np.eye(3))
            for f in (alignment.procrustes_raw, alignment.procrustes, alignment.rsa, alignment.cka, alignment.permuted)
        ),
        *(lambda f=f: f(np.ones(3)) for f in (geometry.norm, geometry.effective_dimension, geometry.mds)),
        lambda: alignment.permuted(EYE, np.ones((2, 4, 4))),
    ],
    "blocks, tokens, features": [lambda: alignment.views(PE)],
    "count must be": [lambda: alignment.permuted(EYE, EYE, count=0)],
    "related must be": [
        lambda bad=bad: alignment.neighbor_agreement(PE, bad) for bad in (np.eye(16), np.ones((5, 5), bool))
    ],
    "labels must be one number": [lambda: alignment.probe(PE, np.arange(5), np.arange(16))],
    "folds must be one number": [lambda: alignment.probe(PE, np.arange(16), 4)],
    "folds must be of at least two": [lambda: alignment.probe(PE, np.arange(16), np.zeros(16))],
    "ridge must be a number": [
        lambda: alignment.probe(PE, np.arange(16), np.arange(16), ridge=0),
        lambda: baselines.Linear(ridge=-1),
    ],
    # attention, behaviour, robustness
    "positions must be an array": [lambda: attention.ideal_map([0, 1, 2])],
    "as large as the reference": [
        lambda f=f, shape=shape: f(np.ones(shape), EYE)
        for f in (attention.cosine, attention.correlation)
        for shape in ((3, 3), (4,), (4, 3))
    ],
    "conditions must be": [lambda: behaviour.by_condition(np.zeros((2, 3)), ["a", "b"])],
    "groups must be": [lambda: behaviour.agreement_with_others(np.zeros((3, 4)), ["a", "b"])],
    "answers must be": [lambda: behaviour.agreement(np.zeros(4))],
    "tokens from 0 to 3": [lambda bad=bad: behaviour.error_rate([True, False], bad, 4) for bad in ([0, 4], [-1, 0])],
    "places must be one for each example": [lambda: behaviour.error_rate([True, False], [0], 4)],
    "3 rising levels": [
        lambda bad=bad: robustness.tolerance([0.9, 0.8, 0.7], bad, 0.25)
        for bad in ([0.0, 0.1], [0, 0.2, 0.1], [0, 0.1, 0.1])
    ],
    "levels of noise": [lambda bad=bad: robustness.retained(bad, 0.25) for bad in (0.9, np.zeros((3, 0)))],
    # baselines
    "fitted before": [lambda: baselines.Linear().predict(TRAIN[:4], HIDDEN)],
    "NaN or infinity is in channel 2": [
        lambda: baselines.Linear().fit(np.where(np.arange(4)[:, None] == 2, np.nan, TRAIN))
    ],
    "constant over 100 samples: channel 2": [
        lambda: baselines.Linear().fit(np.where(np.arange(4)[:, None] == 2, 0.1, TRAIN))
    ],
    "at least 10 samples": [lambda: baselines.Linear().fit(TRAIN[:9])],
    "(samples, channels)": [lambda: baselines.Linear().fit(TRAIN[0, 0])],
    "at least 2 channels": [lambda: baselines.Linear().fit(TRAIN[:, :1])],
    "share must be": [lambda: baselines.Linear().fit(TRAIN, share=1.0)],
    "4 channels with windows of 2": [
        lambda: baselines.Linear().fit(TRAIN).predict(TRAIN[:4, :3], HIDDEN),
        lambda: baselines.Linear().fit(TRAIN).predict(TRAIN[:4, :, 0], HIDDEN),
    ],
    "hidden must be true or false": [
        lambda: baselines.Linear().fit(TRAIN).predict(TRAIN[:4], HIDDEN.astype(float)),
        lambda: baselines.errors(TRAIN[:4], TRAIN[:4], HIDDEN[:3]),
    ],
    "the shape of values": [lambda: baselines.errors(TRAIN[:3], TRAIN[:4], HIDDEN)],
    "finite where they are visible": [
        lambda: baselines.Linear().fit(TRAIN).predict(np.full((4, 4, 2), np.nan), HIDDEN)
    ],
    "hidden must hide": [lambda: baselines.mse(EYE, EYE, np.zeros((4, 4), bool))],
    "components must be a whole number of at least 1": [lambda: baselines.Pca(0)],
    "components must be a whole number from 1 to 7": [lambda: baselines.Pca(8).fit(TRAIN)],
    "examples must be": [lambda: baselines.Ridge(10), lambda: baselines.Trees(10)],
    "trees must be": [lambda: baselines.Trees(trees=0)],
    "channels must be numbers from 0 to 3": [lambda: baselines.Trees(channels=[5]).fit(TRAIN)],
    # connectivity
    "NaN or infinity is in channels 1, 3": [
        lambda f=f, more=more: f([*more, without_column(np.nan)])
        for f in (connectivity.correlation, connectivity.mutual_information, connectivity.partial_correlation)
        for more in ([], [VALUES])
    ],
    "constant over 30 samples: channels 1, 3": [lambda: connectivity.correlation(without_column(0.1))],
    "at least 10 samples and 2 channels": [
        lambda bad=bad: connectivity.correlation(bad) for bad in (VALUES[:9], VALUES[:, 0])
    ],
    "recordings of the same channels": [lambda: connectivity.correlation([VALUES, VALUES[:, :4]])],
    "one recording at least": [lambda: connectivity.correlation([])],
    "bins must be": [lambda: connectivity.mutual_information(VALUES, bins=1)],
    "symmetric, (channels, channels)": [
        lambda f=f, bad=bad: f(bad, 2)
        for f in (connectivity.mds_embedding, connectivity.spectral_clusters)
        for bad in (ONES[:3], np.triu(ONES), NAN, ONES[0])
    ],
    "k must be a whole number from 1 to 4": [
        *(
            lambda f=f, k=k: f(EYE, k)
            for f in (connectivity.mds_embedding, connectivity.spectral_clusters)
            for k in (0, 5, 1.5)
        ),
        lambda: connectivity.pca_embedding(VALUES[:, :4], 5),
    ],
    "ones on the diagonal": [lambda: connectivity.mds_embedding(2 * EYE)],
    # geometry, places
    "end must be": [lambda: geometry.moved(np.ones((1, 3, 2)), np.ones((2, 3, 2)))],
    "two maps of one shape": [lambda: geometry.turned(np.ones((4, 2)), np.ones((5, 2)))],
    "positions must be finite numbers": [
        *(
            lambda bad=bad: places.neighbors_in_space(bad)
            for bad in (np.zeros(4), np.zeros((0, 2)), np.zeros((3, 0)), NAN)
        ),
        *(
            lambda f=f, bad=bad: f(bad, 8)
            for f in (targets.targets, lambda p, _: targets.related(p))
            for bad in (np.arange(4.0), NAN)
        ),
        *(lambda bad=bad: targets.related(bad) for bad in (np.empty((0, 2)), np.empty((3, 0)))),
        lambda: places.procrustes_r2(np.zeros(5), np.zeros(5)),
    ],
    "placed must be": [lambda: places.procrustes_r2(np.zeros((5, 3)), np.zeros((5, 2)))],
    "near must be": [lambda bad=bad: places.place_agreement(EYE, bad) for bad in (np.ones((3, 3), bool), ONES)],
    "similar must be one matrix": [lambda: places.arrange(np.zeros((2, 3, 3)))],
    # modules, partitions, nulls
    "labels must be one whole number for each of the 24": [
        *(
            lambda f=f, bad=bad: f(W, bad)
            for f in (modules.modularity, modules.segregation, modules.silhouette, modules.neighbor_agreement)
            for bad in (GROUPS[:5], GROUPS.astype(float), 4)
        ),
        lambda: partitions.ari(GROUPS, GROUPS[:5]),
    ],
    "labels must be whole numbers of at least 0": [lambda: modules.modularity(W, GROUPS - 3)],
    "similar must be an array": [
        *(
            lambda f=f: f(W[:, :5], GROUPS)
            for f in (modules.modularity, modules.segregation, modules.silhouette, modules.neighbor_agreement)
        ),
        lambda: nulls.label_null(modules.modularity, W[:5], GROUPS),
        lambda: places.place_agreement(np.zeros((4, 3)), ONES == 1),
    ],
    "coordinates must be finite numbers": [
        *(lambda bad=bad: modules.coordinate_agreement(W, bad) for bad in (PLACES[:5], PLACES[:, 0], PLACES * np.nan)),
        *(
            lambda bad=bad: nulls.smooth_nulls(STATISTIC, W, bad)
            for bad in (PLACES[:5], PLACES[0], np.zeros((24, 3)), PLACES * np.inf)
        ),
    ],
    "a and b must be": [lambda: modules.matrix_correlation(W, W[:5, :5])],
    "k must be a whole number from 1 to 24": [lambda k=k: partitions.clusters(W, k) for k in (0, 25)],
    "restarts must be": [lambda: partitions.best_partition(W, restarts=0)],
    "labels must be one for each of the 24": [lambda: nulls.label_null(modules.modularity, W, GROUPS[:9])],
    "labels must be one for each token": [lambda: nulls.label_null(modules.modularity, W, 3)],
    "draws must be": [
        lambda: nulls.label_null(modules.modularity, W, GROUPS, draws=0),
        lambda: nulls.smooth_nulls(STATISTIC, W, PLACES, draws=0),
    ],
    "orders must be": [
        lambda bad=bad: nulls.matrix_null(W, W, bad)
        for bad in (np.zeros((5, 24), int), np.arange(24), np.arange(9)[None], np.arange(24.0)[None])
    ],
    "matrix must be of the 24 tokens": [lambda: nulls.matrix_null(W, W[:5, :5], nulls.shuffles(GROUPS, 5))],
    "hemispheres must be": [lambda: nulls.smooth_nulls(STATISTIC, W, PLACES, 9, hemispheres=GROUPS[:5])],
    # stats
    "one size in their last axes": [
        lambda f=f: f(np.ones((3, 4)), np.ones((3, 1))) for f in (stats.spearman, stats.over_settings, stats.within)
    ],
    "(settings, seeds)": [
        *(lambda f=f: f(np.ones(4), np.ones(4)) for f in (stats.over_settings, stats.within, stats.permutation_within)),
        lambda: stats.permutation_within(np.ones((2, 3, 4)), np.ones((2, 3, 4))),
    ],
    "p must be values from 0 to 1": [lambda: stats.fdr([0.1, 1.5])],
}


@pytest.mark.parametrize(("words", "calls"), CASES.items(), ids=list(CASES))
def test_bad_input_is_refused(words: str, calls: list[Callable[[], object]]) -> None:
    for call in calls:
        with pytest.raises(BadInput) as error:
            call()
        assert words in str(error.value)

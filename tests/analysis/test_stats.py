"""Statistics over seeds: parity with scipy and brute force, what must not matter, and how often the bounds hold."""

import math
from itertools import permutations, product

import numpy as np
import pytest
from scipy import stats

from placecode.analysis import stats as statistics
from placecode.analysis.stats import (
    between_correlation,
    bootstrap,
    interval,
    partial_within_correlation,
    spearman,
    within_correlation,
    within_permutation_p,
)

pytestmark = pytest.mark.filterwarnings("error")


def tables(rng, rho: float, shared: float, settings: int = 6, seeds: int = 15) -> tuple[np.ndarray, np.ndarray]:
    """Two tables, correlated by rho within each setting; `shared` of the variance is the seed's own in all settings."""

    def normal() -> np.ndarray:
        individual, common = rng.normal(size=(settings, seeds)), rng.normal(size=seeds)
        return np.asarray(math.sqrt(1 - shared) * individual + math.sqrt(shared) * common)

    x = normal()
    return x, rho * x + math.sqrt(1 - rho**2) * normal()


@pytest.mark.parametrize("level", [0.5, 0.95, 0.99])
@pytest.mark.parametrize("n", [2, 3, 15])
def test_interval_equals_scipys(n, level) -> None:
    values = np.random.default_rng(n).normal(0.9, 0.05, n)
    low, high = stats.t.interval(level, n - 1, loc=values.mean(), scale=stats.sem(values))
    np.testing.assert_allclose(interval(values, level), (values.mean(), low, high), rtol=1e-12)
    assert statistics.half_width(float(values.std(ddof=1)), n, level) == pytest.approx(values.mean() - low)
    assert interval([math.nan, *values, math.nan], level) == interval(values, level)


def test_intervals_of_few_or_equal_values_are_known() -> None:
    for values in ([0.7], [0.7, math.nan]):
        np.testing.assert_equal(interval(values), (0.7, math.nan, math.nan))
    for values in ([], [math.nan]):
        np.testing.assert_equal(interval(values), (math.nan,) * 3)
    assert interval([0.5, 0.5, 0.5]) == (0.5, 0.5, 0.5)
    assert interval([0.5, 1.0, 1.0]).high > 1  # bounds are not clipped
    assert math.isnan(statistics.half_width(1.0, 1))


def test_spearman_equals_scipys_with_ties_and_gaps(rng) -> None:
    x, y = rng.integers(6, size=(2, 3, 4, 12)).astype(float)
    x[rng.random(x.shape) < 0.1] = np.nan
    y[rng.random(y.shape) < 0.1] = np.nan
    result = spearman(x, y)
    assert result.shape == (3, 4)
    for at in np.ndindex(3, 4):
        assert result[at] == pytest.approx(stats.spearmanr(x[at], y[at], nan_policy="omit").statistic, abs=1e-12)
    assert spearman([1, 2, np.inf, np.nan], [3, 4, 5, 0]) == 1  # infinity has a rank


@pytest.mark.parametrize("x", [[1, 1, 1, 1], [1, 2, np.nan, np.nan], [np.nan] * 4])
def test_no_correlation_without_variation_or_with_two_pairs(x) -> None:
    np.testing.assert_array_equal(spearman([x, [1.0, 2, 3, np.nan]], [1, 2, 3, 4]), [np.nan, 1])


def test_within_given_equals_the_textbook_formula_of_partial_correlation(rng) -> None:
    x, y, third = rng.normal(size=(3, 2, 1, 15)) + rng.normal(size=(2, 1, 15))  # a single setting
    result = partial_within_correlation(x, y, third)
    for i in range(2):
        xy, xg, yg = (stats.spearmanr(a[i, 0], b[i, 0]).statistic for a, b in ((x, y), (x, third), (y, third)))
        assert result[i] == pytest.approx((xy - xg * yg) / math.sqrt((1 - xg**2) * (1 - yg**2)), abs=1e-12)


def test_a_common_cause_is_removed_in_each_setting(rng) -> None:
    """The cause raises x and y in some settings and lowers x in others, so that every setting needs its slope."""
    cause = rng.normal(size=(6, 300))
    x, y = cause * np.array([1, 1, 1, -1, -1, -1])[:, None] + rng.normal(size=(2, 6, 300))
    assert within_correlation(x, y) > 0.4 and abs(partial_within_correlation(x, y, cause)) < 0.08
    assert partial_within_correlation(x, y, rng.normal(size=(6, 300))) > 0.4  # the control: not a cause


def test_within_given_at_its_edges(rng) -> None:
    x, y = rng.normal(size=(2, 1, 8))
    assert np.isnan(partial_within_correlation(x, np.exp(y), y)), "nothing is left of a function of what is given"
    with_constant = partial_within_correlation(x, y, np.ones((1, 8)))
    assert with_constant == pytest.approx(float(within_correlation(x, y))), "a constant explains nothing"
    assert np.isnan(partial_within_correlation(x[:, :3], y[:, :3], [[1, 3, 2]])), "three pairs leave a single free one"
    gap = np.where(np.arange(8) == 5, np.nan, 1.0)
    rest = np.delete(np.arange(8), 5)
    expected = partial_within_correlation(x[:, rest], y[:, rest], rest[None])
    assert partial_within_correlation(x, y, np.arange(8)[None] * gap) == pytest.approx(float(expected))


def test_between_correlation_equals_spearman_of_means(rng) -> None:
    x, y = rng.normal(size=(2, 3, 7, 5))
    x[1, 2, 3] = np.nan
    result = between_correlation(x, y)
    assert result.shape == (3,)
    assert result[0] == pytest.approx(stats.spearmanr(x[0].mean(-1), y[0].mean(-1)).statistic)
    y[1, 2, 3] = 1e9  # the partner of a missing value is left out with it
    assert between_correlation(x, y)[1] == result[1]
    x[1, 2, 3] = 0
    assert between_correlation(x, y)[1] != result[1]
    expected = between_correlation(x[0, 1:], y[0, 1:])
    x[0, 0] = np.nan  # a setting without values is left out
    assert between_correlation(x[0], y[0]) == expected
    assert np.isnan(between_correlation(x[0, :3], y[0, :3])), "two settings are left"
    same = np.array([rng.permutation(x[2, 0]) for _ in range(20)])  # equal means tie whatever their rounding
    assert np.isnan(between_correlation(same, rng.normal(size=(20, 5))))


def test_within_equals_pearsons_correlation_of_centred_ranks(rng) -> None:
    x, y = rng.normal(size=(2, 5, 8))
    x[0, :3] = y[1, 4] = np.nan
    pooled = []
    for a, b in zip(x, y, strict=True):
        present = ~np.isnan(a + b)
        ranks = np.array([stats.rankdata(a[present]), stats.rankdata(b[present])])
        pooled.append(ranks - ranks.mean(axis=1, keepdims=True))
    assert within_correlation(x, y) == pytest.approx(np.corrcoef(np.concatenate(pooled, axis=1))[0, 1], abs=1e-12)
    x, y = rng.normal(size=(2, 4, 1, 12))  # a single setting
    x[0, 0, 3] = np.nan
    np.testing.assert_allclose(within_correlation(x, y), spearman(x, y)[:, 0], atol=1e-12)


def test_a_diverged_row_of_tables_is_nan_and_its_neighbour_is_not(rng) -> None:
    x, y, third = rng.normal(size=(3, 2, 4, 6))
    expected = within_correlation(x, y)[1], partial_within_correlation(x, y, third)[1], between_correlation(x, y)[1]
    x[0] = np.nan
    result = within_correlation(x, y), partial_within_correlation(x, y, third), between_correlation(x, y)
    for pair, value in zip(result, expected, strict=True):
        np.testing.assert_array_equal(pair, [np.nan, value])


def test_bootstrap_of_within_holds_the_truth(rng) -> None:
    """The seed decides half of the variance, the same half in all settings."""
    true = 6 / math.pi * math.asin(0.5 / 2)  # Spearman's correlation of normal variables with correlation 0.5
    draws = [bootstrap(within_correlation, *tables(rng, 0.5, 0.5), draws=200, seed=i) for i in range(200)]
    assert 0.87 <= np.mean([low <= true <= high for _, low, high in draws]) <= 0.975


@pytest.mark.parametrize("missing", [0.0, 0.15])
@pytest.mark.parametrize("digits", [0, 3])  # with ties and without
def test_counted_ranks_equal_sorted_ranks(digits, missing, rng) -> None:
    """`bootstrap` counts the ranks of `within_correlation`; under another name it sorts every draw."""
    tables = rng.normal(size=(3, 6, 12)).round(digits)
    tables[rng.random(tables.shape) < missing] = np.nan
    tables[0, 0, :2] = np.inf
    for statistic, count in ((within_correlation, 2), (partial_within_correlation, 3)):
        counted = bootstrap(statistic, *tables[:count], draws=300)
        assert counted == pytest.approx(bootstrap(lambda *drawn: statistic(*drawn), *tables[:count], draws=300))  # noqa: B023
        assert counted.low < counted.mean < counted.high


@pytest.mark.parametrize("third", [False, True])
def test_a_setting_without_values_does_not_matter(third, rng) -> None:
    """With a value missing, every deal is ranked anew; one setting more that has none must change nothing."""
    tables = rng.normal(size=(3 if third else 2, 4, 10))
    more = np.concatenate([tables, np.full_like(tables[:, :1], np.nan)], axis=1)
    assert within_permutation_p(*tables) == within_permutation_p(*more)


def test_bootstrap_draws_the_same_seeds_in_all_tables(rng) -> None:
    x = rng.normal(size=(3, 15))
    assert bootstrap(lambda a, b: (a - b).mean((-2, -1)), x, x + 1)[1:] == pytest.approx((-1, -1))
    low, high = bootstrap(lambda a, b: (a - b).mean((-2, -1)), x, rng.permuted(x, axis=1) + 1)[1:]
    assert high - low > 0.1
    row = rng.normal(size=15)  # tables may have different axes
    assert bootstrap(lambda a, b: a.mean((1, 2)) - b.mean(1), x, row).mean == pytest.approx(x.mean() - row.mean())


def test_bootstrap_of_three_seeds_equals_all_draws(monkeypatch) -> None:
    """Three seeds: 27 equally probable draws, so that the bounds at level 0.8 can be counted out."""
    monkeypatch.setattr("placecode.analysis.stats.MIN_SEEDS", 3)
    values = np.array([0.0, 1, 10])
    means = sorted(float(np.mean(draw)) for draw in product(values, repeat=3))
    result = bootstrap(lambda table: table.mean(-1), values, level=0.8, draws=20_000)
    assert result == pytest.approx((values.mean(), means[2], means[-3]))


def test_bootstrap_depends_on_seed_level_and_number_of_seeds(rng) -> None:
    x, y = tables(rng, 0.5, 0.5)
    once, other = bootstrap(within_correlation, x, y), bootstrap(within_correlation, x, y, seed=1)
    assert bootstrap(within_correlation, x, y) == once != other
    wide, narrow = bootstrap(within_correlation, x, y, level=0.99), bootstrap(within_correlation, x, y, level=0.5)
    assert wide.low < narrow.low < wide.mean == narrow.mean < narrow.high < wide.high
    twice = bootstrap(within_correlation, *(np.concatenate([t, t]) for t in (x, y)))
    np.testing.assert_allclose(twice, once, atol=1e-12)  # more settings are no more evidence
    more = bootstrap(within_correlation, *tables(rng, 0.5, 0.5, seeds=60))  # more seeds are
    assert more.high - more.low < 0.75 * (once.high - once.low)


def test_bootstrap_without_enough_seeds_or_a_value(rng) -> None:
    x, y = rng.normal(size=(2, 4, 8))
    few = x.copy()
    few[:, 7:] = np.nan
    for a, b in ((x[:, :7], y[:, :7]), (few, y), (np.ones((4, 8)), y)):
        np.testing.assert_equal(bootstrap(within_correlation, a, b, draws=50)[1:], (math.nan, math.nan))
    assert math.isfinite(bootstrap(within_correlation, x, y, draws=50).low)
    assert math.isnan(bootstrap(lambda table: table.mean(-1), [1.0, 2.0]).low), "two seeds"
    for least, bounds in ((8, False), (4, True)):  # different seeds in a draw: all 8 hardly ever, 4 or more in 95%

        def at_least(table: np.ndarray, least: int = least) -> np.ndarray:
            different = 1 + (np.diff(np.sort(table)) > 0).sum(-1)
            return np.where(different >= least, table.mean(-1), np.nan)

        assert math.isfinite(bootstrap(at_least, x[0]).low) == bounds
    gone = np.insert(x, 2, np.nan, axis=1), np.insert(y, 2, 0.0, axis=1)  # a seed without any value is as if not there
    assert bootstrap(within_correlation, *gone) == bootstrap(within_correlation, x, y)


def nominal(p: np.ndarray) -> bool:
    """Shares of p values below 0.05, 0.2 and 0.5 are what they should be, within four standard errors."""
    levels = np.array([0.05, 0.2, 0.5])
    shares = (np.asarray(p)[:, None] <= levels).mean(axis=0)
    return bool((np.abs(shares - levels) < 4 * np.sqrt(levels * (1 - levels) / len(p))).all())


def test_p_values_are_uniform_under_the_null(rng) -> None:
    """Seeds that matter in all settings: the test that moves whole seeds is right, the count of members is not."""
    cases = [tables(rng, 0.0, 0.7) for _ in range(200)]
    assert nominal([within_permutation_p(x, y, draws=99, seed=i) for i, (x, y) in enumerate(cases)])
    assert not nominal([2 * stats.norm.sf(abs(within_correlation(x, y)) * math.sqrt(x.size)) for x, y in cases])


def test_permutation_within_equals_brute_force_on_four_seeds(rng) -> None:
    """x and the given read backwards are their own negatives, so that every value comes twice, but for its rounding."""
    orders = [list(order) for order in permutations(range(4))]
    for _ in range(6):
        (x, third), y = rng.normal(size=(2, 5, 4)), rng.normal(size=(5, 4))
        x, third = x - x[:, ::-1], third - third[:, ::-1]
        for rest, statistic in (((), within_correlation), ((third,), partial_within_correlation)):
            values = np.array([abs(statistic(x[:, p], y, *(g[:, p] for g in rest))) for p in orders])
            expected = (values >= values[0] - 1e-9).mean()
            assert within_permutation_p(x, y, *rest, draws=10_000) == pytest.approx(expected, abs=0.025)


def test_permutation_within_finds_a_planted_correlation(rng) -> None:
    x, y = tables(rng, 0.9, 0.5)
    assert within_permutation_p(x, y) < 0.005 and within_permutation_p(x, y, rng.normal(size=x.shape)) < 0.005
    assert within_permutation_p(x, y[:, rng.permutation(15)]) > 0.005  # the control: seeds matched by chance
    assert within_permutation_p(x, y + 5 * np.arange(6)[:, None]) == within_permutation_p(x, y)
    x[1, 3] = y[2, 4:9] = np.nan
    assert within_permutation_p(x, y, draws=500) < 0.01 and math.isnan(within_permutation_p(np.ones((6, 15)), y))


def test_fdr_equals_benjamini_and_hochbergs_steps(rng) -> None:
    p = rng.uniform(size=(4, 5)) ** 3
    p[1, 2] = np.nan
    result, tested = statistics.fdr(p), p[~np.isnan(p)]
    np.testing.assert_array_equal(np.isnan(result), np.isnan(p))
    for level in (0.01, 0.05, 0.2, 0.5):
        rejected = [value for rank, value in enumerate(sorted(tested), 1) if value <= level * rank / len(tested)]
        np.testing.assert_array_equal(result[~np.isnan(p)] <= level, tested <= max(rejected, default=-1.0))
    for p in ([], [np.nan], 0.3):
        np.testing.assert_array_equal(statistics.fdr(p), p)

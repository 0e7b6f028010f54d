"""Structure in PEs of channels, and the same measures of the data."""

import numpy as np
import pandas as pd
import pytest
import torch

from placecode.analysis import connectivity
from placecode.analysis.baselines import Linear
from placecode.analysis.places import procrustes_r2
from placecode.experiments.channels import baselines, structure
from placecode.models.member import Member
from placecode.tasks.masked import Masked, join_recordings
from placecode.tasks.network import Network
from placecode.training.trainer import stack_for

N = 12


@pytest.fixture(scope="module")
def task() -> Network:
    return Network(nodes=N, clusters=3, worlds=2, train=600, test=60, shuffled=True, seed=1)


def members(*seeds: int) -> list[Member]:
    return [Member(width=8, layers=2, batch=8, sigma=0.1, seed=seed) for seed in seeds]


def table(rows: list[dict[str, object]]) -> pd.DataFrame:
    return pd.DataFrame(rows).set_index(["analysis", "target", "block", "member"])["value"]


def test_planted_clusters_are_found_and_random_ones_are_not(task: Network) -> None:
    stack = stack_for(members(0, 1), task)
    with torch.no_grad():
        places = torch.eye(8)[torch.from_numpy(task.labels)]  # (n, d)
        stack.encoding.vectors()[0] += 5 * places  # type: ignore[index]
    rows = table(structure.pe_structure(stack, task.bind(stack.members)))
    for block in (-1, -2, 0, 1):
        assert rows["neighbor_agreement", "labels", block, 0] == 1
        assert rows["neighbor_agreement", "labels", block, 1] < 0.8
    assert rows["ari", "labels", -1, 0] == rows["ami", "labels", -1, 0] == 1
    assert rows["modularity_p", "labels", -1, 0] < 0.01 < rows["modularity_p", "labels", -1, 1]
    assert rows["modularity", "best", -1, 0] == pytest.approx(rows["modularity", "labels", -1, 0])
    assert rows["modules", "best", -1, 0] == 3
    for name in ("ari_p", "ami_p"):
        assert rows[name, "labels", -1, 0] == pytest.approx(1 / 200, abs=0.006) and rows[name, "labels", -1, 1] > 0.02
    assert rows["silhouette_p", "labels", -1, 0] < 0.01 < rows["silhouette_p", "labels", -1, 1] <= 1
    assert rows["silhouette_z", "labels", -1, 0] > 3 > rows["silhouette_z", "labels", -1, 1]
    chance = rows[[name for name in rows.index if name[0].endswith(("_p", "_z"))]]
    assert set(chance.index.get_level_values("block")) == {-1}


def test_an_encoding_without_vectors_has_no_structure(task: Network) -> None:
    assert structure.pe_structure(stack_for([Member(encoding="rotary", width=8, layers=1)], task), task) == []


def test_baselines_are_evaluated_on_the_batches_of_members(task: Network) -> None:
    (member,) = members(1)
    rows = pd.DataFrame(baselines.baseline_rows(task, [member], ("linear",), [0]))
    assert set(rows["world"]) == {1}
    bound = task.bind([member])
    inputs, targets = bound.batch("test", torch.arange(bound.row_count("test"))[None])
    fitted = Linear().fit(structure.training_values(task, 1))
    guess = fitted.predict(targets[0, ..., 0].double().numpy(), inputs[0, ..., 1].bool().numpy())
    mse = bound.metrics(torch.from_numpy(guess)[None, ..., None], targets)["mse"][0].numpy()
    for number, condition in enumerate(task.conditions):
        (value,) = rows.loc[rows["condition"] == condition, "value"]
        assert value == pytest.approx(mse.reshape(2, -1)[number].mean(), abs=1e-6)


def test_structure_of_data_is_measured_like_that_of_pes(task: Network) -> None:
    rows = pd.DataFrame(baselines.baseline_rows(task, members(0, 1, 2), ("fc", "spectral", "mds of fc"), [0, 1]))
    fc = rows[(rows["baseline"] == "fc") & (rows["metric"] == "neighbor_agreement")]
    assert fc["world"].tolist() == [0, 1]
    for world, agreement in zip(fc["world"], fc["value"], strict=True):
        similarity = np.corrcoef(structure.training_values(task, world).T)[None]
        direct = structure.structure_measures(similarity, task, null=False)["neighbor_agreement", "labels"][0]
        assert agreement == pytest.approx(direct)
    assert set(rows.loc[rows["baseline"] == "spectral", "metric"]) == {"ari", "ami"}


class Mirrored(Masked):
    """Channels that resemble their group and, more so, their mirror, and lie near both. With another order of the
    recordings they do not."""

    name = "mirrored"

    def __init__(self, order: np.ndarray) -> None:
        rng = np.random.default_rng(4)
        group, pair, noise = (rng.normal(size=(400, size)) for size in (3, N // 2, N))
        self.labels, self.partner = np.arange(N) // 4, np.arange(N) ^ 1
        values = group[:, self.labels] + pair[:, np.arange(N) // 2] + 0.3 * noise
        super().__init__({name: join_recordings([values[part][:, order]]) for name, part in HALVES.items()})
        self.positions = 9 * np.eye(3)[self.labels] + np.repeat(rng.normal(size=(N // 2, 3)), 2, axis=0)
        self.positions += 0.1 * rng.normal(size=(N, 3))


HALVES = {"train": slice(300), "test": slice(300, None)}
SCRAMBLED = np.random.default_rng(8).permutation(N)


@pytest.mark.parametrize("baseline", ["fc", "mds of fc"])
def test_baselines_are_compared_with_chance_like_pes(baseline: str) -> None:
    targets = {f"{name}_p": "labels" for name in ("modularity", "segregation", "neighbor_agreement", "silhouette")}
    targets |= {"ari_p": "labels", "ami_p": "labels"}
    targets |= {"mirror_agreement_p": "partner", "coordinate_agreement_p": "positions"}
    p_values = []
    for order in (np.arange(N), SCRAMBLED):
        table = pd.DataFrame(baselines.baseline_rows(Mirrored(order), members(0), (baseline,), []))
        chance = table[table["metric"].str.endswith("_p")].set_index("metric")
        assert chance["condition"].to_dict() == targets
        assert chance["value"].between(0, 1).all()
        p_values.append(chance["value"])
    assert p_values[0].max() < 0.02 and p_values[1].min() > 0.05


def test_pes_are_compared_with_chance_by_mirror_and_position() -> None:
    task = Mirrored(np.arange(N))
    stack = stack_for(members(0, 1), task)
    with torch.no_grad():
        stack.encoding.vectors()[0, ..., :6] += 5 * torch.eye(6)[torch.arange(N) // 2]  # type: ignore[index]
    rows = table(structure.pe_structure(stack, task.bind(stack.members)))
    for name, target in (("mirror_agreement_p", "partner"), ("coordinate_agreement_p", "positions")):
        assert rows[name, target, -1, 0] < 0.01 and 0.05 < rows[name, target, -1, 1] <= 1
        assert (name, target, 0, 0) not in rows.index


class Placed(Masked):
    """Channels on a grid of 3 x 4, the more alike the nearer they are, unless the recordings have another order. None
    mirrors another."""

    name = "placed"

    def __init__(self, order: np.ndarray) -> None:
        self.positions = np.stack(np.divmod(np.arange(N), 4), axis=1).astype(np.float64)
        covariance = np.exp(-np.square(self.positions[:, None] - self.positions).sum(-1) / 4) + np.eye(N) / 10
        values = np.random.default_rng(5).multivariate_normal(np.zeros(N), covariance, size=400)
        super().__init__({name: join_recordings([values[part][:, order]]) for name, part in HALVES.items()})


@pytest.mark.parametrize("baseline", ["fc", "partial correlation", "mds of fc", "pca of channels"])
def test_baselines_are_compared_with_positions(baseline: str) -> None:
    by_order = {}
    for kind, order in (("known", np.arange(N)), ("scrambled", SCRAMBLED)):
        table = pd.DataFrame(baselines.baseline_rows(Placed(order), members(0), (baseline,), []))
        table = table[(table["condition"] == "positions")].set_index("metric")["value"]
        assert {"neighbor_agreement", "neighbor_agreement_p", "procrustes_r2", "coordinate_agreement"} <= {*table.index}
        by_order[kind] = table
    assert by_order["known"]["neighbor_agreement"] > 0.7 and by_order["known"]["neighbor_agreement_p"] < 0.02
    assert by_order["scrambled"]["neighbor_agreement_p"] > 0.02 and by_order["scrambled"]["procrustes_r2"] < 0.5
    assert by_order["known"]["procrustes_r2"] > (0.3 if baseline == "pca of channels" else 0.8)


def test_embeddings_of_channels_are_compared_by_their_own_coordinates() -> None:
    task = Placed(np.arange(N))
    rows = pd.DataFrame(baselines.baseline_rows(task, members(0), ("mds of fc", "pca of channels"), []))
    scores = rows[rows["metric"] == "procrustes_r2"].set_index("baseline")["value"]
    values = structure.training_values(task, 0)
    mds = connectivity.mds_embedding(connectivity.correlation(values), 8)
    for name, placed in {"mds of fc": mds, "pca of channels": connectivity.pca_embedding(values, 8)}.items():
        assert scores[name] == pytest.approx(procrustes_r2(placed[:, :2], task.positions))


def test_pes_are_compared_with_positions() -> None:
    task = Placed(np.arange(N))
    stack = stack_for(members(0, 1), task)
    bumps = np.exp(-np.square(task.positions[:, None] - task.positions).sum(-1) / 4)[:, ::2]
    with torch.no_grad():
        stack.encoding.vectors()[0, ..., :6] += 9 * torch.from_numpy(bumps).float()  # type: ignore[index]
    rows = table(structure.pe_structure(stack, task.bind(stack.members)))
    near, far = (rows.xs(("positions", -1, member), level=(1, 2, 3)) for member in (0, 1))
    assert near["neighbor_agreement"] > 0.7 and near["neighbor_agreement_p"] < 0.01 and near["procrustes_r2"] > 0.8
    assert far["neighbor_agreement_p"] > 0.02 and far["procrustes_r2"] < 0.6
    assert ("neighbor_agreement", "positions", 0, 0) in rows.index
    assert ("neighbor_agreement_p", "positions", 0, 0) not in rows.index
    assert ("procrustes_r2", "positions", 0, 0) not in rows.index


def test_brains_have_no_agreement_of_neighbours_in_space() -> None:
    """Their nearest region is the mirror, which lies far away."""
    measures = structure.structure_measures(np.eye(N)[None], Mirrored(np.arange(N)))
    assert ("coordinate_agreement", "positions") in measures
    assert not {("neighbor_agreement", "positions"), ("procrustes_r2", "positions")} & set(measures)


def test_a_matrix_that_is_not_of_cosines_has_no_map() -> None:
    values = np.random.default_rng(0).normal(size=(50, N))
    assert np.isnan(structure.flat_map(connectivity.mutual_information(values))).all()
    assert np.isnan(structure.flat_map(np.full((N, N), np.nan))).all()
    assert structure.flat_map(np.corrcoef(values.T)).shape == (N, 2)


def test_attention_is_compared_with_connectivity(task: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    """With that of its world, and with shuffled channels."""
    stack = stack_for(members(0, 1), task)
    fc = np.stack([np.corrcoef(structure.training_values(task, world).T) for world in (0, 1)])

    def measured(maps: torch.Tensor, **options: bool) -> pd.Series:
        """Return the rows for these attention maps (e, l, h, n, n)."""
        monkeypatch.setattr(structure, "attention_maps", lambda stack, task: maps)
        return table(structure.attention_structure(stack, task, **options))

    maps = torch.from_numpy(np.stack([fc, -fc], 1)[:, :, None])  # like fc in one block, unlike it in the other
    by_block = measured(maps)["attention_correlation", "fc"]
    assert by_block[0].tolist() == pytest.approx([1, 1]) and by_block[1].tolist() == pytest.approx([-1, -1])
    assert measured(maps.flip(0))["attention_correlation", "fc", 0, 0] < 0.99  # of the other world
    noise = np.random.default_rng(0).normal(size=(N, N))
    maps = torch.from_numpy(np.stack([fc[0], noise]))[:, None, None].expand(2, 2, 1, N, N)
    p_values = measured(maps)["attention_correlation_p", "fc"]
    assert p_values[-1, 0] == 1 / 200 and 0.05 < p_values[-1, 1] <= 1
    assert set(p_values.index.get_level_values("block")) == {-1}
    assert "attention_correlation_p" not in measured(maps, null=False).index


def test_members_of_different_settings_are_not_compared() -> None:
    specs = [(0.1, 0), (0.1, 1), (2.0, 0)]
    frame = pd.DataFrame({"member": range(3), "sigma": [s for s, _ in specs], "seed": [k for _, k in specs]})
    frame = frame.assign(state="done", diverged_at=-1, data="")
    rng = np.random.default_rng(0)
    start = [torch.from_numpy(rng.normal(size=(2, N, 8))) for _ in specs]
    end = [start[0], start[0].clone(), start[2] * 3]
    arrays = {f"pe_{when}/{i}": pe for when, pes in (("start", start), ("end", end)) for i, pe in enumerate(pes)}
    rows = pd.DataFrame(structure.pe_change_and_stability(frame, arrays, 1, 7))
    values = rows.set_index(["analysis", "step", "member"])["value"]
    assert values["stability", 7, 0] == pytest.approx(1) and abs(values["stability", 0, 0]) < 0.5
    assert np.isnan(values["stability", 7, 2])  # alone
    assert values["moved", 7, 0] == 0 and values["moved_relative", 7, 2] == pytest.approx(2)
    of_copy = {name: pe for name, pe in arrays.items() if name.startswith("pe_end")}  # a small copy of the run
    rows = pd.DataFrame(structure.pe_change_and_stability(frame, of_copy, 1, 7))
    pd.testing.assert_series_equal(
        rows.set_index(["analysis", "step", "member"])["value"], values.loc[["stability"]].loc[:, [7]]
    )


def stability(settings: list[tuple[str, int]], starts: list[torch.Tensor], ends: list[torch.Tensor]) -> pd.Series:
    """The stability of members on these data with these seeds in two worlds, by target, step and member."""
    frame = pd.DataFrame(settings, columns=["data", "seed"])
    frame = frame.assign(member=range(len(settings)), state="done", diverged_at=-1, sigma=0.1)
    arrays = {f"pe_{when}/{i}": pe for when, pes in (("start", starts), ("end", ends)) for i, pe in enumerate(pes)}
    rows = pd.DataFrame(structure.pe_change_and_stability(frame, arrays, 2, 9))
    return rows[rows["analysis"] == "stability"].set_index(["target", "step", "member"])["value"]


def test_data_sets_are_compared_within_a_world_and_between_different_seeds() -> None:
    """Seeds 0 and 2 are in the first of two worlds, 1 and 3 in the second. Members of a seed share their start."""
    settings = [(data, seed) for data in ("first", "second") for seed in range(4)]
    pes = torch.from_numpy(np.random.default_rng(1).normal(size=(6, 1, N, 8)))
    starts, ends = [pes[seed] for _, seed in settings], [pes[4 + seed % 2] for _, seed in settings]
    values = stability(settings, starts, ends)
    for target in ("other seeds", "other data"):
        assert values[target, 9].to_list() == pytest.approx([1.0] * 8)  # the same world alone
        assert values[target, 0].abs().max() < 0.5  # at the start the same seed would be the same PE
    alone = [(f"{data} {seed}", seed) for data, seed in settings]  # no other seed on the same data
    assert stability(alone, starts, ends)["other seeds", 9].isna().all()


def test_windows_of_baselines_do_not_cross_recordings(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted: list[np.ndarray] = []

    class Watching(Linear):
        def fit(self, values: np.ndarray, seed: int = 0, share: float = 0.5) -> Linear:
            fitted.append(np.asarray(values))
            return super().fit(values, seed=seed, share=share)

    monkeypatch.setitem(baselines.PREDICTORS, "linear", Watching)
    parts = [np.random.default_rng(i).normal(size=(1, 30, 4)) for i in range(3)]
    task = Masked({"train": join_recordings(parts, 3), "test": join_recordings(parts[:1], 3)}, 3)
    list(baselines.baseline_rows(task, members(0), ("linear",), []))
    assert fitted[0].shape == (3 * 28, 4, 3)  # (windows, channels, times)
    np.testing.assert_allclose(fitted[0][28], parts[1][0, :3].T, atol=1e-6)


def test_attention_maps_are_the_same_in_any_portions(task: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    stack = stack_for(members(0, 1), task)
    expected = structure.attention_maps(stack, task.bind(stack.members))
    monkeypatch.setattr(structure, "MAX_ATTENTION_VALUES", 1)
    assert len(structure._portions(stack, task, 7)) == 7
    torch.testing.assert_close(structure.attention_maps(stack, task.bind(stack.members)), expected)


def test_data_sets_are_never_compared_between_worlds() -> None:
    """Seeds on the same data are, if the world has no other seed."""
    pes = [torch.from_numpy(np.random.default_rng(0).normal(size=(1, N, 8)))] * 4
    values = stability([("a", 0), ("a", 1), ("b", 0), ("b", 1)], pes, pes)
    assert values["other data"].isna().all() and values["other seeds", 9].to_list() == pytest.approx([1] * 4)

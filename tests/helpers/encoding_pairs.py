"""The settings that claims on lst-encodings compare."""

LEARNED, TRUE = "learned:sigma=0.2", "sinusoid:axes=2"
Setting = tuple[str, float]
"""An encoding, as a text, and its dropout."""
OURS, FIXED, OURS_DROPPED, FIXED_DROPPED = (LEARNED, 0.0), (TRUE, 0.0), (LEARNED, 0.1), (TRUE, 0.1)
PAIRS: dict[str, tuple[Setting, Setting]] = {
    "near-2d-fixed-as-published": (OURS, FIXED_DROPPED),
    "near-2d-fixed": (OURS, FIXED),
    "near-2d-fixed-both-dropout": (OURS_DROPPED, FIXED_DROPPED),
    "2d-fixed-beats-learned": (FIXED, OURS),
    "dropout-lifts-2d-fixed": (FIXED_DROPPED, FIXED),
    "dropout-lifts-learned": (OURS_DROPPED, OURS),
    "beats-1d-fixed": (OURS, ("sinusoid", 0.0)),
    "beats-1d-fixed-as-published": (OURS, ("sinusoid", 0.1)),
    "beats-relative": (OURS, ("relative", 0.0)),
    "beats-relative-as-published": (OURS, ("relative:causal=1:sigma=1", 0.0)),
    "beats-rotary": (OURS, ("rotary", 0.0)),
    "beats-rotary-as-published": (OURS, ("rotary:fraction=0.5", 0.0)),
    "beats-random": (OURS, ("random:sigma=1", 0.0)),
    "beats-random-as-published": (OURS, ("random:sigma=1", 0.1)),
    "beats-none": (OURS, ("none", 0.0)),
    "beats-none-as-published": (OURS, ("none", 0.0)),
    "beats-causal-none": (OURS, ("causal-none", 0.0)),
    "beats-causal-none-as-published": (OURS, ("causal-none:temperature=0.01", 0.0)),
}
"""The two settings that each claim compares: the first minus the second."""

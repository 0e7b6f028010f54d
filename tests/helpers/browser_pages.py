"""Pages of reports in a real browser."""

import shutil
from pathlib import Path
from typing import Any, Self

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
FLAGS += ["--disable-background-networking", "--disable-component-update"]
WIDE, PHONE = {"width": 1200, "height": 900}, {"width": 390, "height": 844}


class Opened:
    """A page in the browser, with all that went wrong or was asked for outside of it."""

    def __init__(self, browser: Any, path: Path, size: dict[str, int] = WIDE, scheme: str = "light") -> None:
        self.context = browser.new_context(viewport=size, color_scheme=scheme, accept_downloads=True)
        self.page = self.context.new_page()
        self.wrong: list[str] = []
        self.page.on("console", self.note_message)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.wrong.append(dialog.message), dialog.dismiss()))
        self.page.on("request", self.note_request)
        self.page.goto(path.as_uri())

    def note_message(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.wrong.append(message.text)

    def note_request(self, request: Any) -> None:
        if not request.url.startswith(("file:", "data:", "blob:")):
            self.wrong.append(request.url)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        wrong = list(self.wrong)
        self.context.close()
        assert not wrong, wrong

    def move_to(self, at: int, slider: int = 0) -> None:
        self.page.evaluate(
            "([slider, at]) => { const input = document.getElementById(`slider-${slider}`); input.value = at;"
            " input.dispatchEvent(new Event('input', { bubbles: true })); }",
            [slider, at],
        )

    def shown(self, slider: int = 0) -> dict[str, tuple[str, str, dict[str, str]]]:
        """The numbers of a slider by measure: as a reader sees them, and with all digits."""
        script = (
            "(slider) => Object.fromEntries("
            "[...document.querySelectorAll(`[data-slider='${slider}'] [data-measure]`)].map("
            "(row) => [row.dataset.measure, [row.querySelector('b').textContent,"
            " row.querySelector('small').textContent, { ...row.dataset }]]))"
        )
        return {name: tuple(values) for name, values in self.page.evaluate(script, slider).items()}

    def drawn(self, panel: str, script: str) -> Any:
        """What plotly has of a panel: `plot` is its element in the script."""
        plot = f"const plot = document.querySelector('[data-panel={panel}]');"
        return self.page.evaluate(f"() => {{ {plot} return {script}; }}")

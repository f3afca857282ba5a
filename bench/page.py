"""A page of bench/results: shown line by line, and kept once it is complete."""
import statistics


def compared(pairs, form="{:,.0f}", better=lambda redis, tern: tern / redis):
    """The columns of a comparison: redis, tern, ratio, min-max of the ratio. `pairs`: what a round measured of both."""
    redis, tern = (form.format(statistics.median(side)) for side in zip(*pairs))
    ratios = [better(*pair) for pair in pairs]
    return f"{redis} | {tern} | **{statistics.median(ratios):.2f}** | {min(ratios):.2f}-{max(ratios):.2f}"


class Page:
    """`file`: where to keep it; None: nowhere."""

    def __init__(self, file):
        self.file, self.lines = file, []

    def say(self, *lines):
        self.lines += lines
        print("\n".join(lines), flush=True)

    def keep(self):
        if self.file:
            with open(self.file, "w") as f:
                f.write("\n".join(self.lines) + "\n")

"""A page of bench/results: shown line by line, and kept once it is complete."""


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

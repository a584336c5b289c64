"""The tables of JuiceFS's own comparison of metadata engines, with what was measured here beside them."""

# JuiceFS 0.16-dev on Amazon S3, client c5.xlarge, metadata c5d.xlarge, as published in JuiceFS's documentation
# ("Metadata Engines Benchmark"): other machines, another network, an older program. Not a comparison.
PUBLISHED = {
    "Redis-Always": ("312.81 MiB/s", "348.06 MiB/s", "26.0 files/s", "1431.6 files/s", "6713.7 files/s", "0.45 ms", "1.04 ms", "350"),
    "Redis-Everysec": ("303.45 MiB/s", "525.78 MiB/s", "27.5 files/s", "1113.4 files/s", "6885.8 files/s", "0.32 ms", "0.79 ms", "360"),
    "MySQL": ("310.26 MiB/s", "493.45 MiB/s", "22.7 files/s", "608.0 files/s", "2144.9 files/s", "0.41 ms", "3.36 ms", "360"),
    "TiKV": ("310.90 MiB/s", "477.78 MiB/s", "24.2 files/s", "415.7 files/s", "1164.5 files/s", "0.40 ms", "1.74 ms", "358"),
}
# Rows as published, and what `juicefs bench` calls them today.
ROWS = [
    ("Write big", "Write big file"),
    ("Read big", "Read big file"),
    ("Write small", "Write small file"),
    ("Read small", "Read small file"),
    ("Stat file", "Stat file"),
    ("FUSE operation", "FUSE operation"),
    ("Update meta", "Update meta"),
]
FIO = "fio big write"


def table(title, columns):
    """Prints columns of values, each a dictionary by row."""
    names = [row for row, _ in ROWS] + [FIO]
    widths = {column: max(len(column), 14) for column in columns}
    print(f"\n{title}\n")
    print("| " + " " * 14 + " | " + " | ".join(column.ljust(widths[column]) for column in columns) + " |")
    print("| " + "-" * 14 + " | " + " | ".join("-" * widths[column] for column in columns) + " |")
    for name in names:
        cells = (str(columns[column].get(name, "-")).ljust(widths[column]) for column in columns)
        print(f"| {name.ljust(14)} | " + " | ".join(cells) + " |")


def published():
    names = [row for row, _ in ROWS] + [FIO]
    return {
        engine: dict(zip(names, (*values[:-1], f"{values[-1]} MiB/s"), strict=True)) for engine, values in PUBLISHED.items()
    }


def measured(volume, big, small_count, fio_megabytes):
    """One column: both benches on a mounted volume."""
    values = volume.bench(big, small_count)
    column = {row: values[item] for row, item in ROWS if item in values}
    column[FIO] = f"{volume.fio(fio_megabytes):.2f} MiB/s"
    return column

"""Write the configuration with which a ClickHouse server keeps the parts of its tables in S3.

``python docker/clickhouse_s3.py URL > s3.xml``, for the server's ``config.d/``. It has no credential: the server takes
them from its environment or from the role of its machine. It was not run on a server.
"""

import argparse
import sys
from xml.etree import ElementTree as ET

_CACHE_BYTES = 20 * 2**30


def configuration(url: str, *, cache_bytes: int = _CACHE_BYTES) -> str:
    """Return the XML.

    Args:
        url: ``https://BUCKET.s3.REGION.amazonaws.com/PREFIX/``, or that of another store.
        cache_bytes: Of the local cache.
    """
    root = ET.Element("clickhouse")
    storage = ET.SubElement(root, "storage_configuration")
    disks = ET.SubElement(storage, "disks")
    _fill(
        ET.SubElement(disks, "s3"),
        {"type": "s3", "endpoint": url.rstrip("/") + "/", "use_environment_credentials": "1"},
    )
    _fill(
        ET.SubElement(disks, "s3_cache"),
        {"type": "cache", "disk": "s3", "path": "/var/lib/clickhouse/s3_cache/", "max_size": str(cache_bytes)},
    )
    volumes = ET.SubElement(ET.SubElement(ET.SubElement(storage, "policies"), "s3"), "volumes")
    _fill(ET.SubElement(volumes, "main"), {"disk": "s3_cache"})
    _fill(ET.SubElement(root, "merge_tree"), {"storage_policy": "s3"})
    ET.indent(root)
    return ET.tostring(root, encoding="unicode") + "\n"


def _fill(element: ET.Element, values: dict[str, str]) -> None:
    for name, text in values.items():
        ET.SubElement(element, name).text = text


def main() -> None:
    """Print the configuration."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("url", help="URL of the bucket and a prefix, with https://")
    arguments = parser.parse_args()
    if not arguments.url.startswith(("https://", "http://")):
        sys.exit(f"{arguments.url}: expected a URL such as https://BUCKET.s3.REGION.amazonaws.com/clickhouse/")
    sys.stdout.write(configuration(arguments.url))


if __name__ == "__main__":
    main()

"""What pyproject.toml cannot say: the zoo, which stands beside the package, is installed inside it."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["radial", "radial.*"]), "radial._zoo"],
    package_dir={"radial._zoo": "zoo"},
)

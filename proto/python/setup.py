"""Makes the package from the .proto files: messages, stubs and their types."""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

PROTOS = Path(__file__).resolve().parent.parent


class Generate(build_py):
    """Adds the generated modules to what is built."""

    def run(self):
        from grpc_tools import protoc

        super().run()
        target = Path(self.build_lib)
        target.mkdir(parents=True, exist_ok=True)
        files = sorted(PROTOS.glob("lumpscope/v1/*.proto"))
        outputs = ["--python_out", "--grpc_python_out", "--mypy_out", "--mypy_grpc_out"]
        arguments = ["protoc", f"-I{PROTOS}", *(f"{out}={target}" for out in outputs)]
        if protoc.main([*arguments, *map(str, files)]) != 0:
            raise SystemExit("protoc fails: see above")
        (target / "lumpscope" / "v1" / "__init__.py").touch()


setup(packages=["lumpscope"], package_data={"lumpscope": ["py.typed"]}, cmdclass={"build_py": Generate})

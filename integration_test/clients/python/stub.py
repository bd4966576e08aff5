"""Compares the methods that clients/python declares for asyncio with those that it has, and prints how many there are."""

import ast
import pathlib

package = pathlib.Path(__file__).parent / "../../../clients/python/fbfkv"


def methods(file, name):
    """Returns the signatures of a class' public methods."""
    (found,) = [node for node in ast.parse((package / file).read_text()).body if isinstance(node, ast.ClassDef) and node.name == name]
    functions = [node for node in found.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name[0] != "_"]
    return {f.name: (ast.unparse(f.args).replace("'", ""), ast.unparse(f.returns)) for f in functions}


declared = methods("asyncio.pyi", "Counters")
own = methods("asyncio.py", "Counters")
assert declared == {**methods("core.py", "Methods"), **own}, declared
print(len(declared), "methods")

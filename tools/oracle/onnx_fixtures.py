#!/usr/bin/env python3
"""Small models with every operator that crates/onnx runs, and what onnxruntime makes of them
   -> crates/onnx/tests/fixtures/{elementwise,shapes,reductions,products}.{onnx,json}

    python tools/oracle/onnx_fixtures.py

Needs: onnx, onnxruntime, numpy. Each model is written by the onnx package, passes its full check, and has one output for
each way to use an operator, called by what it shows. Inputs are closed forms (vit_hash.py); the JSON has them all the same:
    {"onnxruntime": version, "inputs" and "outputs": {name: {"type": "f32" or "i64", "shape": [...], "values": [...]}}}
Constants are stored in both forms that the format has, as bytes and as lists of numbers.
"""

import pathlib

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import onnx_check
import vit_hash

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "crates" / "onnx" / "tests" / "fixtures"
TYPES = {np.dtype(np.float32): ("f32", TensorProto.FLOAT), np.dtype(np.int64): ("i64", TensorProto.INT64)}


class Case:
    """A model as it grows."""

    def __init__(self):
        self.nodes, self.inputs, self.constants, self.outputs = [], {}, {}, []

    def input(self, name, shape, scale=2.0):
        u = vit_hash.uniform(vit_hash.INPUT_STREAM + len(self.inputs), int(np.prod(shape)))
        self.inputs[name] = (scale * u).astype(np.float32).reshape(shape)
        return name

    def constant(self, values, dtype=np.int64):
        name = f"c{len(self.constants)}"
        self.constants[name] = np.array(values, dtype)
        return name

    def add(self, op, inputs, outputs, **attributes):
        """A node; each output is one of the model."""
        outputs = [outputs] if isinstance(outputs, str) else outputs
        self.nodes.append(helper.make_node(op, inputs, outputs, name=outputs[0], **attributes))
        self.outputs += outputs

    def tensors(self):
        for number, (name, values) in enumerate(self.constants.items()):
            if number % 2:
                yield numpy_helper.from_array(values, name)
            else:
                yield helper.make_tensor(name, TYPES[values.dtype][1], values.shape, values.ravel().tolist())

    def model(self, results):
        """With the shapes of the outputs, once they are known."""
        info = lambda name, value: helper.make_tensor_value_info(name, TYPES[value.dtype][1], value.shape)
        untyped = lambda name: helper.make_empty_tensor_value_info(name)
        outputs = [info(name, results[name]) if results else untyped(name) for name in self.outputs]
        inputs = [info(name, value) for name, value in self.inputs.items()]
        graph = helper.make_graph(self.nodes, "operators", inputs, outputs, list(self.tensors()))
        opset = helper.make_opsetid("", 17)
        return helper.make_model(graph, opset_imports=[opset], ir_version=8, producer_name="onnx_fixtures.py")

    def run(self, model):
        runtime = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        return dict(zip(self.outputs, runtime.run(self.outputs, self.inputs)))

    def write(self, name):
        # onnxruntime infers the types that are missing.
        results = self.run(self.model(None))
        model = self.model(results)
        onnx.checker.check_model(model, full_check=True)
        results = self.run(model)
        path = OUT / f"{name}.onnx"
        path.write_bytes(model.SerializeToString(deterministic=True))
        print(f"wrote {path}: {path.stat().st_size} bytes, {len(self.nodes)} nodes")

        def entry(value):
            return {"type": TYPES[value.dtype][0], "shape": list(value.shape), "values": value.ravel().tolist()}

        fixture = {"onnxruntime": onnxruntime.__version__}
        for part, values in (("inputs", self.inputs), ("outputs", results)):
            fixture[part] = {name: entry(value) for name, value in values.items()}
        onnx_check.write(OUT / f"{name}.json", fixture)


def elementwise():
    case = Case()
    a, b, row = case.input("a", (2, 3, 4)), case.input("b", (3, 1)), case.input("row", (4,))
    for op in ("Add", "Sub", "Mul", "Div"):
        case.add(op, [a, b], f"{op}.broadcast")
        case.add(op, [b, row], f"{op}.both")
        case.add(op, [case.constant([7, -7, 9]), case.constant([2])], f"{op}.whole")
    case.add("Add", [a, case.constant(0.5, np.float32)], "Add.scalar")
    for op in ("Erf", "Exp", "Tanh", "Relu", "Neg", "Identity"):
        case.add(op, [a], op)
    case.add("Neg", [case.constant([3, -4])], "Neg.whole")
    case.add("Mul", [a, a], "square")
    for op in ("Sqrt", "Log"):
        case.add(op, ["square"], op)
    case.add("Max", [a, row], "Max")
    case.add("Max", [a, b, row], "Max.three")
    low, high = case.constant(-0.5, np.float32), case.constant(1.0, np.float32)
    case.add("Clip", [a, low, high], "Clip")
    case.add("Clip", [a, low], "Clip.low")
    case.add("Clip", [a, "", high], "Clip.high")
    case.add("Cast", [a], "Cast.whole", to=TensorProto.INT64)
    case.add("Cast", ["Cast.whole"], "Cast.back", to=TensorProto.FLOAT)
    case.write("elementwise")


def shapes():
    case = Case()
    a, b = case.input("a", (2, 3, 4)), case.input("b", (2, 1, 4))
    ints = case.constant
    case.add("Transpose", [a], "Transpose")
    case.add("Transpose", [a], "Transpose.perm", perm=[1, 0, 2])
    case.add("Reshape", [a, ints([0, -1])], "Reshape")
    case.add("Reshape", [a, ints([-1, 0, 2, 2])], "Reshape.zero")
    case.add("Squeeze", [b, ints([1])], "Squeeze")
    case.add("Squeeze", [b], "Squeeze.all")
    case.add("Unsqueeze", [a, ints([-1, 1])], "Unsqueeze")
    case.add("Expand", [b, ints([3, 1, 3, 1])], "Expand")
    case.add("Slice", [a, ints([1]), ints([3]), ints([1])], "Slice")
    case.add("Slice", [a, ints([0, -3]), ints([1, 1000])], "Slice.no_axes")
    case.add("Slice", [a, ints([-1, 0]), ints([-1000, 4]), ints([1, -1]), ints([-2, 3])], "Slice.steps")
    case.add("Slice", [a, ints([3]), ints([1]), ints([2])], "Slice.nothing")
    case.add("Split", [a, ints([1, 3])], ["Split.first", "Split.second"], axis=2)
    case.add("Split", [a], ["Split.a", "Split.b", "Split.c"], axis=1)
    case.add("Concat", [a, b, a], "Concat", axis=1)
    case.add("Concat", [ints([1, 2]), ints([3])], "Concat.whole", axis=-1)
    case.add("Gather", [a, ints(2)], "Gather.scalar", axis=1)
    case.add("Gather", [a, ints([[0, -1], [1, 1]])], "Gather.matrix", axis=2)
    case.add("Gather", [ints([5, 6, 7]), ints([2, 0])], "Gather.whole")
    case.add("Shape", [a], "Shape")
    case.add("Shape", [a], "Shape.part", start=-2, end=3)
    case.add("Constant", [], "Constant.tensor", value=numpy_helper.from_array(np.float32([[1.5], [2.5]])))
    case.add("Constant", [], "Constant.int", value_int=-3)
    case.add("Constant", [], "Constant.ints", value_ints=[4, 5])
    case.add("Constant", [], "Constant.float", value_float=0.25)
    case.add("ConstantOfShape", [ints([2, 2])], "ConstantOfShape")
    value = numpy_helper.from_array(np.int64([9]))
    case.add("ConstantOfShape", [ints([3])], "ConstantOfShape.value", value=value)
    case.write("shapes")


def reductions():
    case = Case()
    a, large = case.input("a", (2, 3, 4)), case.input("large", (2, 3), scale=400.0)
    for op in ("ReduceMean", "ReduceMax", "ReduceL2", "ReduceLogSumExp"):
        case.add(op, [a], op, axes=[-1])
        case.add(op, [a], f"{op}.two", axes=[0, 2], keepdims=0)
        case.add(op, [a], f"{op}.all", keepdims=0)
    case.add("ReduceLogSumExp", [large], "ReduceLogSumExp.large", axes=[1])
    case.add("ReduceSum", [a, case.constant([1])], "ReduceSum", keepdims=0)
    case.add("ReduceSum", [a], "ReduceSum.all")
    case.add("ReduceSum", [a], "ReduceSum.none", noop_with_empty_axes=1)
    case.add("ArgMax", [a], "ArgMax", axis=1)
    case.add("ArgMax", [a], "ArgMax.last", axis=-1, keepdims=0)
    ties = case.constant([[1, 2, 2], [3, 3, 1]], np.float32)
    case.add("ArgMax", [ties], "ArgMax.ties", axis=1)
    case.add("Softmax", [a], "Softmax")
    case.add("Softmax", [a], "Softmax.middle", axis=1)
    case.add("Softmax", [large], "Softmax.large")
    scale, shift = case.input("scale", (4,)), case.input("shift", (4,))
    case.add("LayerNormalization", [a, scale, shift], "LayerNormalization", epsilon=1e-6)
    case.add("LayerNormalization", [a, scale], "LayerNormalization.default")
    wide = case.input("wide", (3, 4))
    case.add("LayerNormalization", [a, wide, shift], "LayerNormalization.two", axis=1, epsilon=0.5)
    case.write("reductions")


def products():
    case = Case()
    a, b, c = case.input("a", (2, 3, 4)), case.input("b", (4, 5)), case.input("c", (3, 1, 4, 2))
    row, column = case.input("row", (4,)), case.input("column", (5,))
    case.add("MatMul", [a, b], "MatMul")
    case.add("MatMul", [a, c], "MatMul.broadcast")
    case.add("MatMul", [a, row], "MatMul.right_vector")
    case.add("Transpose", [a], "transposed", perm=[0, 2, 1])
    case.add("MatMul", [row, "transposed"], "MatMul.left_vector")
    case.add("MatMul", [row, row], "MatMul.vectors")
    case.add("MatMul", [row, b], "MatMul.row")
    m, n = case.input("m", (3, 4)), case.input("n", (5, 4))
    case.add("Gemm", [m, b, column], "Gemm")
    case.add("Gemm", [m, n, case.constant(2.0, np.float32)], "Gemm.scaled", alpha=0.5, beta=3.0, transB=1)
    case.add("Gemm", [b, n], "Gemm.both", transA=1, transB=1)
    image = case.input("image", (2, 3, 9, 7))
    kernel, bias = case.input("kernel", (4, 3, 3, 2)), case.input("bias", (4,))
    case.add("Conv", [image, kernel, bias], "Conv.patches", strides=[3, 2], kernel_shape=[3, 2])
    case.add("Conv", [image, kernel], "Conv", strides=[2, 1], pads=[1, 0, 2, 1], dilations=[1, 2])
    case.write("products")


if __name__ == "__main__":
    OUT.mkdir(parents=True, exist_ok=True)
    elementwise()
    shapes()
    reductions()
    products()

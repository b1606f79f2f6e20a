"""tinygrad's operators on its default device, group by group, against NumPy."""

import unittest

import numpy as np
from tinygrad import Tensor, TinyJit, Variable, dtypes, nn
from tinygrad.helpers import Context

random = np.random.default_rng(11)


def floats(*shape, low=-3.0, high=3.0, type_=np.float32):
    return random.uniform(low, high, shape).astype(type_)


def whole(*shape, low=-50, high=50, type_=np.int32):
    return random.integers(low, high, shape).astype(type_)


def erf(x):
    from math import erf as scalar
    return np.vectorize(scalar)(x)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


class Case(unittest.TestCase):
    def same(self, got, want, relative=1e-5, absolute=1e-6):
        got = got.numpy() if isinstance(got, Tensor) else got
        want = np.asarray(want)
        self.assertEqual(got.shape, want.shape)
        np.testing.assert_allclose(
            got.astype(np.float64) if got.dtype != bool else got, want.astype(np.float64)
            if want.dtype != bool else want, rtol=relative, atol=absolute)

    def check(self, ours, numpys, *arrays, relative=1e-5, absolute=1e-6):
        want = numpys(*[x.astype(np.float64) if x.dtype == np.float32 else x for x in arrays])
        self.same(ours(*[Tensor(x) for x in arrays]), want, relative, absolute)


# Each row: a name, tinygrad's way, NumPy's way, the arrays, and tolerances where sums are long.
def table(name, rows):
    def make(ours, numpys, arrays, more):
        return lambda self: self.check(ours, numpys, *arrays, **more)

    methods = {}
    for row, ours, numpys, arrays, *more in rows:
        methods[f"test_{row}"] = make(ours, numpys, arrays, more[0] if more else {})
    return type(name, (Case,), methods)


x, y = floats(45, 65), floats(45, 65)
up = floats(45, 65, low=0.1, high=4)
unit = floats(45, 65, low=-0.99, high=0.99)
i, j = whole(45, 65), whole(45, 65, low=1, high=9)

TestUnary = table("TestUnary", [
    ("neg", lambda t: -t, lambda a: -a, [x]),
    ("abs", lambda t: t.abs(), np.abs, [x]),
    ("sign", lambda t: t.sign(), np.sign, [x]),
    ("square", lambda t: t.square(), np.square, [x]),
    ("sqrt", lambda t: t.sqrt(), np.sqrt, [up]),
    ("rsqrt", lambda t: t.rsqrt(), lambda a: 1 / np.sqrt(a), [up]),
    ("reciprocal", lambda t: t.reciprocal(), lambda a: 1 / a, [up]),
    ("exp", lambda t: t.exp(), np.exp, [x]),
    ("exp2", lambda t: t.exp2(), np.exp2, [x]),
    ("log", lambda t: t.log(), np.log, [up], {"absolute": 1e-5}),
    ("log2", lambda t: t.log2(), np.log2, [up], {"absolute": 1e-5}),
    ("sin", lambda t: t.sin(), np.sin, [x], {"absolute": 1e-5}),
    ("sin_large", lambda t: t.sin(), np.sin, [x * 1000], {"absolute": 5e-4}),
    ("cos", lambda t: t.cos(), np.cos, [x], {"absolute": 1e-5}),
    ("tan", lambda t: t.tan(), np.tan, [unit], {"relative": 1e-4, "absolute": 1e-5}),
    ("atan", lambda t: t.atan(), np.arctan, [x], {"relative": 1e-4, "absolute": 1e-4}),
    ("asin", lambda t: t.asin(), np.arcsin, [unit], {"relative": 1e-4, "absolute": 1e-4}),
    ("sinh", lambda t: t.sinh(), np.sinh, [x], {"relative": 1e-4, "absolute": 1e-5}),
    ("tanh", lambda t: t.tanh(), np.tanh, [x], {"absolute": 1e-5}),
    ("erf", lambda t: t.erf(), erf, [x], {"absolute": 1e-5}),
    ("floor", lambda t: t.floor(), np.floor, [x]),
    ("ceil", lambda t: t.ceil(), np.ceil, [x]),
    ("trunc", lambda t: t.trunc(), np.trunc, [x]),
    ("round", lambda t: t.round(), np.round, [np.array([0.5, 1.5, -0.5, 2.4, -2.6], np.float32)]),
    ("isnan", lambda t: (t / t).isnan(), np.isnan, [np.ones((4, 4), np.float32)]),
    ("invert", lambda t: ~t, lambda a: ~a, [i]),
    ("logical_not", lambda t: (t > 0).logical_not(), lambda a: ~(a > 0), [x]),
])

TestActivations = table("TestActivations", [
    ("relu", lambda t: t.relu(), lambda a: np.maximum(a, 0), [x]),
    ("relu6", lambda t: t.relu6(), lambda a: np.clip(a, 0, 6), [x * 4]),
    ("leaky_relu", lambda t: t.leaky_relu(0.1), lambda a: np.where(a > 0, a, 0.1 * a), [x]),
    ("sigmoid", lambda t: t.sigmoid(), sigmoid, [x]),
    ("elu", lambda t: t.elu(), lambda a: np.where(a > 0, a, np.exp(a) - 1), [x]),
    ("gelu", lambda t: t.gelu(), lambda a: 0.5 * a * (1 + np.tanh(
        np.sqrt(2 / np.pi) * (a + 0.044715 * a ** 3))), [x], {"absolute": 1e-5}),
    ("silu", lambda t: t.silu(), lambda a: a * sigmoid(a), [x]),
    ("softplus", lambda t: t.softplus(), lambda a: np.log1p(np.exp(a)), [x], {"absolute": 1e-5}),
    ("hardtanh", lambda t: t.hardtanh(), lambda a: np.clip(a, -1, 1), [x]),
    ("clip", lambda t: t.clip(-1, 2), lambda a: np.clip(a, -1, 2), [x]),
    ("mish", lambda t: t.mish(), lambda a: a * np.tanh(np.log1p(np.exp(a))), [x],
     {"absolute": 1e-5}),
])

TestBinary = table("TestBinary", [
    ("add", lambda s, t: s + t, np.add, [x, y]),
    ("sub", lambda s, t: s - t, np.subtract, [x, y]),
    ("mul", lambda s, t: s * t, np.multiply, [x, y]),
    ("div", lambda s, t: s / t, np.divide, [x, up]),
    ("pow", lambda s, t: s.pow(t), np.power, [up, y], {"relative": 1e-4}),
    ("pow_3", lambda t: t ** 3, lambda a: a ** 3, [x]),
    ("maximum", lambda s, t: s.maximum(t), np.maximum, [x, y]),
    ("minimum", lambda s, t: s.minimum(t), np.minimum, [x, y]),
    ("where", lambda s, t: (s > 0).where(s, t), lambda a, b: np.where(a > 0, a, b), [x, y]),
    ("broadcast", lambda s, t: s + t, np.add, [floats(7, 1, 5), floats(3, 1)]),
    ("less", lambda s, t: s < t, np.less, [x, y]),
    ("equal", lambda s, t: s == t, np.equal, [i, j]),
    ("int_add", lambda s, t: s + t, np.add, [i, j]),
    ("int_mul", lambda s, t: s * t, np.multiply, [i, j]),
    ("int_floordiv", lambda s, t: s // t, np.floor_divide, [i, j]),
    ("int_mod", lambda s, t: s % t, np.mod, [i, j]),
    ("and", lambda s, t: s & t, np.bitwise_and, [i, j]),
    ("or", lambda s, t: s | t, np.bitwise_or, [i, j]),
    ("xor", lambda s, t: s ^ t, np.bitwise_xor, [i, j]),
    ("shl", lambda t: t << 3, lambda a: a << 3, [i.astype(np.uint32)]),
    ("shr", lambda t: t >> 2, lambda a: a >> 2, [i.astype(np.uint32)]),
    ("lerp", lambda s, t: s.lerp(t, 0.3), lambda a, b: a + (b - a) * 0.3, [x, y]),
    ("copysign", lambda s, t: s.copysign(t), np.copysign, [x, y]),
])

z = floats(6, 45, 65)
TestReduce = table("TestReduce", [
    ("sum", lambda t: t.sum(), np.sum, [z], {"relative": 1e-4, "absolute": 1e-3}),
    ("sum_0", lambda t: t.sum(0), lambda a: a.sum(0), [z], {"absolute": 1e-5}),
    ("sum_12", lambda t: t.sum((1, 2)), lambda a: a.sum((1, 2)), [z], {"absolute": 1e-3}),
    ("sum_long", lambda t: t.sum(1), lambda a: a.sum(1), [floats(3, 20000)], {"absolute": 1e-2}),
    ("sum_int", lambda t: t.sum(1), lambda a: a.sum(1), [i]),
    ("prod", lambda t: t.prod(1), lambda a: a.prod(1), [floats(9, 11)], {"relative": 1e-4}),
    ("max", lambda t: t.max(2), lambda a: a.max(2), [z]),
    ("min", lambda t: t.min(), np.min, [z]),
    ("mean", lambda t: t.mean(1), lambda a: a.mean(1), [z], {"absolute": 1e-5}),
    ("var", lambda t: t.var(2), lambda a: a.var(2, ddof=1), [z], {"absolute": 1e-5}),
    ("std", lambda t: t.std(), lambda a: a.std(ddof=1), [z], {"relative": 1e-4}),
    ("any", lambda t: (t > 2.9).any(1), lambda a: (a > 2.9).any(1), [x]),
    ("all", lambda t: (t > -2.9).all(0), lambda a: (a > -2.9).all(0), [x]),
    ("argmax", lambda t: t.argmax(1), lambda a: a.argmax(1), [x]),
    ("argmin", lambda t: t.argmin(0), lambda a: a.argmin(0), [x]),
    ("cumsum", lambda t: t.cumsum(1), lambda a: a.cumsum(1), [x], {"absolute": 1e-4}),
    ("cumsum_long", lambda t: t.cumsum(), np.cumsum, [whole(3000)]),
    ("cummax", lambda t: t.cummax(1)[0], lambda a: np.maximum.accumulate(a, 1), [x]),
    ("logsumexp", lambda t: t.logsumexp(1), lambda a: np.log(np.exp(a).sum(1)), [x],
     {"absolute": 1e-5}),
    ("softmax", lambda t: t.softmax(1), lambda a: np.exp(a) / np.exp(a).sum(1, keepdims=True), [x]),
    ("log_softmax", lambda t: t.log_softmax(0), lambda a: a - np.log(np.exp(a).sum(0)), [x],
     {"absolute": 1e-5}),
    ("sort", lambda t: t.sort(1)[0], lambda a: np.sort(a, 1), [floats(5, 33)]),
    ("topk", lambda t: t.topk(4)[0], lambda a: -np.sort(-a, 1)[:, :4], [floats(5, 33)]),
])

TestMovement = table("TestMovement", [
    ("reshape", lambda t: t.reshape(65, 45) + 1, lambda a: a.reshape(65, 45) + 1, [x]),
    ("permute", lambda t: t.permute(2, 0, 1) * 2, lambda a: a.transpose(2, 0, 1) * 2, [z]),
    ("transpose", lambda t: t.T.contiguous(), lambda a: a.T, [x]),
    ("flip", lambda t: t.flip(1) + 0, lambda a: a[:, ::-1], [x]),
    ("pad", lambda t: t.pad((1, 2, 3, 4)) + 1, lambda a: np.pad(a, ((3, 4), (1, 2))) + 1, [x]),
    ("shrink", lambda t: t[3:20, 7:] + 1, lambda a: a[3:20, 7:] + 1, [x]),
    ("stride", lambda t: t[::3, ::-2] + 1, lambda a: a[::3, ::-2] + 1, [x]),
    ("expand", lambda t: t.unsqueeze(1).expand(45, 4, 65).sum(0),
     lambda a: np.repeat(a[:, None], 4, 1).sum(0), [x], {"absolute": 1e-4}),
    ("cat", lambda s, t: s.cat(t, dim=1), lambda a, b: np.concatenate([a, b], 1), [x, y]),
    ("stack", lambda s, t: s.stack(t, dim=1), lambda a, b: np.stack([a, b], 1), [x, y]),
    ("roll", lambda t: t.roll(5, 1), lambda a: np.roll(a, 5, 1), [x]),
    ("tril", lambda t: t.tril(2), lambda a: np.tril(a, 2), [x]),
    ("repeat", lambda t: t.repeat((2, 3)), lambda a: np.tile(a, (2, 3)), [x]),
    ("gather", lambda t, k: t.gather(1, k), lambda a, k: np.take_along_axis(a, k, 1),
     [x, whole(45, 20, low=0, high=65)]),
    ("index", lambda t, k: t[k], lambda a, k: a[k], [x, whole(30, low=0, high=45)]),
    ("masked_fill", lambda t: t.masked_fill(t > 1, -7), lambda a: np.where(a > 1, -7, a), [x]),
    ("one_hot", lambda t: t.one_hot(9), lambda a: np.eye(9)[a], [whole(20, low=0, high=9)]),
])


class TestMatmul(Case):
    def product(self, m, k, n, type_=np.float32, relative=1e-4, absolute=1e-4):
        a, b = floats(m, k, type_=type_), floats(k, n, type_=type_)
        want = a.astype(np.float64) @ b.astype(np.float64)
        self.same(Tensor(a) @ Tensor(b), want, relative, absolute)

    def test_f32(self):
        for size in [(64, 64, 64), (128, 128, 128), (3, 5, 7), (65, 45, 100), (1, 256, 256)]:
            with self.subTest(size=size):
                self.product(*size)

    def test_f16(self):
        for size in [(64, 64, 64), (128, 256, 64), (65, 45, 100), (33, 32, 17)]:
            with self.subTest(size=size):
                self.product(*size, type_=np.float16, relative=2e-3, absolute=0.1)

    def test_f16_sums_in_f32(self):
        for size in [(64, 64), (128, 128)]:
            a, b = floats(*size, type_=np.float16), floats(*size, type_=np.float16)
            got = Tensor(a).matmul(Tensor(b), dtype=dtypes.float)
            # Without tensor cores each product is rounded to half.
            self.same(got, a.astype(np.float64) @ b.astype(np.float64), 1e-3, 0.05)

    def test_bf16(self):
        a, b = floats(64, 128), floats(128, 64)
        a, b = Tensor(a).cast(dtypes.bfloat16), Tensor(b).cast(dtypes.bfloat16)
        wide_a, wide_b = a.float().numpy(), b.float().numpy()
        got = a.matmul(b, dtype=dtypes.float)
        self.same(got, wide_a.astype(np.float64) @ wide_b, 1e-2, 0.4)

    def test_tf32(self):
        with Context(ALLOW_TF32=1):
            self.product(64, 64, 64, relative=1e-2, absolute=0.05)

    def test_f64(self):
        self.product(48, 40, 32, type_=np.float64, relative=1e-12, absolute=1e-12)

    def test_int8(self):
        a, b = whole(64, 64, type_=np.int8), whole(64, 64, type_=np.int8)
        # A product of two int8 would be int8 again.
        got = Tensor(a).cast(dtypes.int) @ Tensor(b).cast(dtypes.int)
        self.same(got, a.astype(np.int64) @ b)

    def test_batch(self):
        a, b = floats(4, 32, 24), floats(4, 24, 40)
        self.same(Tensor(a) @ Tensor(b), a.astype(np.float64) @ b, 1e-4, 1e-4)

    def test_einsum(self):
        a, b = floats(5, 6, 7), floats(7, 6, 8)
        got = Tensor.einsum("ijk,kjl->il", Tensor(a), Tensor(b))
        self.same(got, np.einsum("ijk,kjl->il", a, b), 1e-4, 1e-4)

    def test_attention(self):
        q, k, v = (floats(2, 4, 32, 16, low=-1, high=1) for _ in range(3))
        scores = q.astype(np.float64) @ k.transpose(0, 1, 3, 2) / 4
        powers = np.exp(scores)
        want = powers / powers.sum(-1, keepdims=True) @ v
        self.same(Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v)), want, 1e-4, 1e-5)


def convolved(image, weight, stride=1, pad=0, groups=1):
    image = np.pad(image.astype(np.float64), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    count, channels, height, width = image.shape
    outs, per, down, across = weight.shape
    rows, columns = (height - down) // stride + 1, (width - across) // stride + 1
    out = np.zeros((count, outs, rows, columns))
    for o in range(outs):
        first = o // (outs // groups) * per
        for r in range(down):
            for c in range(across):
                part = image[:, first:first + per, r:r + stride * rows:stride,
                             c:c + stride * columns:stride]
                out[:, o] += np.einsum("nchw,c->nhw", part, weight[o, :, r, c])
    return out


class TestConvolution(Case):
    def convolution(self, shape, kernel, **how):
        image, weight = floats(*shape), floats(*kernel)
        names = {"pad": "padding"}
        got = Tensor(image).conv2d(Tensor(weight), **{names.get(k, k): v for k, v in how.items()})
        self.same(got, convolved(image, weight, **how), 1e-4, 1e-3)

    def test_plain(self):
        self.convolution((2, 4, 11, 28), (6, 4, 3, 3))

    def test_stride_and_padding(self):
        self.convolution((2, 4, 15, 16), (8, 4, 5, 5), stride=2, pad=2)

    def test_groups(self):
        self.convolution((1, 8, 9, 9), (8, 2, 3, 3), groups=4)

    def test_one_by_one(self):
        self.convolution((4, 16, 8, 8), (32, 16, 1, 1))

    def test_winograd(self):
        with Context(WINO=1):
            self.convolution((1, 4, 9, 9), (4, 4, 3, 3))

    def test_max_pool(self):
        image = floats(2, 3, 12, 14)
        want = image.reshape(2, 3, 6, 2, 7, 2).max((3, 5))
        self.same(Tensor(image).max_pool2d(2), want)

    def test_average_pool(self):
        image = floats(2, 3, 12, 14)
        want = image.reshape(2, 3, 6, 2, 7, 2).mean((3, 5))
        self.same(Tensor(image).avg_pool2d(2), want)


class TestTypes(Case):
    def test_casts(self):
        x = floats(200, low=0, high=100)
        for name in ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64",
                     "uint64", "float16", "float64"]:
            with self.subTest(name=name):
                got = Tensor(x).cast(getattr(dtypes, name)).numpy()
                np.testing.assert_array_equal(got, x.astype(name))

    def test_arithmetic(self):
        for name in ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
                     "float16", "float64"]:
            with self.subTest(name=name):
                a, b = (whole(200, low=0, high=100).astype(name) for _ in range(2))
                with np.errstate(over="ignore"):
                    product = (Tensor(a) * Tensor(b)).realize()  # or it is one operation with +
                    np.testing.assert_array_equal((product + 3).numpy(), a * b + 3)

    def test_half_functions(self):
        a = floats(300, low=0.1, high=3, type_=np.float16)
        wide = a.astype(np.float64)
        self.same(Tensor(a).exp(), np.exp(wide), 2e-3, 1e-3)
        self.same(Tensor(a).log(), np.log(wide), 2e-3, 1e-3)
        self.same(Tensor(a).sqrt(), np.sqrt(wide), 2e-3, 1e-3)
        self.same(Tensor(a).sin(), np.sin(wide), 2e-3, 1e-3)

    def test_double_functions(self):
        a = floats(300, low=0.1, high=3, type_=np.float64)
        self.same(Tensor(a).sqrt(), np.sqrt(a), 1e-15, 0)
        self.same(Tensor(a).exp(), np.exp(a), 1e-6, 0)

    def test_bitcast(self):
        x = floats(100)
        np.testing.assert_array_equal(Tensor(x).bitcast(dtypes.uint32).numpy(), x.view(np.uint32))

    def there_and_back(self, x, type_):
        # In one kernel, a type that the renderer lacks is float32 throughout.
        return Tensor(x).cast(type_).realize().float().numpy()

    def test_bf16(self):
        x = floats(1000)
        bits = x.view(np.uint32)
        want = ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).view(np.float32)
        np.testing.assert_array_equal(self.there_and_back(x, dtypes.bfloat16), want)

    def test_f8(self):
        x = np.array([0, 1, -1.5, 0.3, 7, 100, 448, -0.01], np.float32)
        want = np.array([0, 1, -1.5, 0.3125, 7, 96, 448, -0.009765625], np.float32)
        np.testing.assert_array_equal(self.there_and_back(x, dtypes.fp8e4m3), want)


class TestRandom(Case):
    def test_uniform(self):
        Tensor.manual_seed(3)
        got = Tensor.rand(4000).numpy()
        self.assertTrue((0 <= got).all() and (got < 1).all())
        self.assertAlmostEqual(got.mean(), 0.5, delta=0.03)

    def test_seeds(self):
        Tensor.manual_seed(3)
        first = Tensor.randn(100).numpy()
        Tensor.manual_seed(3)
        np.testing.assert_array_equal(first, Tensor.randn(100).numpy())


class TestJit(Case):
    """What is called again and again becomes a graph of the driver."""

    def test_calls(self):
        @TinyJit
        def step(a, b):
            c = (a @ b).relu()
            return (c.sum(1, keepdim=True) + c).realize()

        for _ in range(6):
            a, b = floats(20, 30), floats(30, 40)
            c = np.maximum(a.astype(np.float64) @ b, 0)
            got = step(Tensor(a).realize(), Tensor(b).realize())
            self.same(got, c.sum(1, keepdims=True) + c, 1e-4, 1e-4)

    def test_variable(self):
        @TinyJit
        def step(a):
            return (a * 2).sum(0).realize()

        data = floats(10, 6)
        whole_ = Tensor(data).realize()
        for count in range(1, 10):
            bound = Variable("count", 1, 10).bind(count)
            got = step(whole_[:bound])
            self.same(got, data[:count].sum(0) * 2, 1e-5, 1e-5)


class TestTraining(Case):
    def test_gradients(self):
        a, b = floats(8, 6), floats(6, 5)
        ta, tb = Tensor(a), Tensor(b)
        (ta @ tb).relu().square().sum().backward()
        product = a.astype(np.float64) @ b
        slope = 2 * np.maximum(product, 0)
        self.same(ta.grad, slope @ b.T, 1e-4, 1e-3)
        self.same(tb.grad, a.T @ slope, 1e-4, 1e-3)

    def test_network(self):
        Tensor.manual_seed(7)
        image, label = Tensor(floats(32, 1, 12, 12)), Tensor(whole(32, low=0, high=4))

        class Net:
            def __init__(self):
                self.first, self.norm = nn.Conv2d(1, 8, 3), nn.BatchNorm(8)
                self.last = nn.Linear(8 * 25, 4)

            def __call__(self, t):
                t = self.norm(self.first(t)).relu().max_pool2d(2)
                return self.last(t.flatten(1))

        net, losses = Net(), []
        optimizer = nn.optim.Adam(nn.state.get_parameters(net), lr=0.01)
        with Context(TRAINING=1) if not hasattr(Tensor, "train") else Tensor.train():
            for _ in range(20):
                optimizer.zero_grad()
                loss = net(image).sparse_categorical_crossentropy(label)
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
        self.assertTrue(np.isfinite(losses).all())
        self.assertLess(losses[-1], 0.6 * losses[0])


if __name__ == "__main__":
    unittest.main()

// Command optimizers is a collection of published optimizers in one plugin, each in a few lines, to
// read and to start from:
//
//	optimizer = {plugin = "./examples/methods/optimizers", method = "nadam"}
//
// Where authors' code and paper differ, the text at the method says which one it is. Their values
// are held to those of optax. What an optimizer needs beyond this, such as other weights for
// evaluation, is in the plugins under examples/plugins.
package main

import (
	"math"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// A method is one optimizer. All of its state has the shape of the tensor and starts at zero,
// unless init says otherwise.
type method struct {
	name   string
	state  []string
	init   func(in input) sdk.State // from X alone; nil: zeros
	update func(in input) (u program.Value, next sdk.State)
}

// methods are all optimizers of the collection.
var methods = []method{
	{name: "signum", state: []string{"m"}, update: signum},
	{name: "rmsprop", state: []string{"v"}, update: rmsprop},
	{name: "adagrad", init: filled("v", 0.1), update: adagrad},
	{name: "adadelta", state: []string{"v", "steps"}, update: adadelta},
	{name: "adamax", state: []string{"m", "v"}, update: adamax},
	{name: "nadam", state: []string{"m", "v"}, update: nadam},
	{name: "radam", state: []string{"m", "v"}, update: radam},
	{name: "amsgrad", state: []string{"m", "v", "largest"}, update: amsgrad},
	{name: "adabelief", state: []string{"m", "v"}, update: adabelief},
	{name: "yogi", init: yogiStart, update: yogi},
	{name: "adan", state: []string{"m", "v", "n", "last"}, update: adan},
	{name: "lamb", state: []string{"m", "v"}, update: lamb},
	{name: "lars", state: []string{"m"}, update: lars},
	{name: "novograd", init: novogradStart, update: novograd},
	{name: "sm3", init: sm3Start, update: sm3},
	{name: "cautious", state: []string{"m", "v"}, update: cautious},
	{name: "grams", state: []string{"m", "v"}, update: grams},
	{name: "laprop", state: []string{"m", "v"}, update: laprop},
	{name: "mars", state: []string{"m", "v", "last"}, update: mars},
	{name: "lookahead", init: lookaheadStart, update: lookahead},
	{name: "adammini", init: adamMiniStart, update: adamMini},
}

// input is what an update reads.
type input struct {
	sdk.UpdateInput
	sdk.Tensor
	b            *program.Builder
	beta1, beta2 float64
	eps          float64
}

// signum (Bernstein et al. 2018, arXiv 1802.04434): the sign of the momentum.
func signum(in input) (program.Value, sdk.State) {
	m := in.mean("m", in.Gradient, in.beta1)
	return m.Sign(), sdk.State{"m": m}
}

// rmsprop (Tieleman and Hinton 2012), with ε inside the root, as in TensorFlow and optax.
func rmsprop(in input) (program.Value, sdk.State) {
	v := in.mean("v", in.Gradient.Square(), in.beta2)
	return in.Gradient.Div(v.Shift(in.eps).Sqrt()), sdk.State{"v": v}
}

// adagrad (Duchi et al. 2011): by the root of the sum of all squares, which starts at 0.1.
func adagrad(in input) (program.Value, sdk.State) {
	v := in.State["v"].Add(in.Gradient.Square())
	return in.Gradient.Div(v.Shift(in.eps).Sqrt()), sdk.State{"v": v}
}

// adadelta (Zeiler 2012, arXiv 1212.5701): scaled by the root mean square of earlier steps. It is
// meant for a rate of 1.
func adadelta(in input) (program.Value, sdk.State) {
	v := in.mean("v", in.Gradient.Square(), in.beta2)
	u := in.State["steps"].Shift(in.eps).Sqrt().Div(v.Shift(in.eps).Sqrt()).Mul(in.Gradient)
	return u, sdk.State{"v": v, "steps": in.mean("steps", u.Square(), in.beta2)}
}

// adamax (Kingma and Ba 2015, section 7.1): by a decaying maximum.
func adamax(in input) (program.Value, sdk.State) {
	m := in.mean("m", in.Gradient, in.beta1)
	v := in.State["v"].Scale(in.beta2).Max(in.Gradient.Abs().Shift(in.eps))
	return in.corrected(m, in.beta1).Div(v), sdk.State{"m": m, "v": v}
}

// nadam (Dozat 2016): Adam with Nesterov's momentum, without a schedule of β₁.
func nadam(in input) (program.Value, sdk.State) {
	m, v := in.moments()
	ahead := m.Div(in.correction(in.beta1, 1)).Scale(in.beta1).
		Add(in.corrected(in.Gradient, in.beta1).Scale(1 - in.beta1))
	return in.normalized(ahead, v), sdk.State{"m": m, "v": v}
}

// radam (Liu et al. 2020, arXiv 1908.03265): the variance of early steps is rectified; as long as
// it is not tractable, steps are those of momentum alone.
func radam(in input) (program.Value, sdk.State) {
	m, v := in.moments()
	limit := 2/(1-in.beta2) - 1
	correction := in.correction(in.beta2, 0)
	length := in.b.Const(limit).Sub(in.Step.Scale(2).Mul(in.b.Const(1).Sub(correction)).
		Div(correction))
	tractable := length.Ge(in.b.Const(5))
	safe := tractable.Select(length, in.b.Const(5))
	factor := safe.Shift(-4).Mul(safe.Shift(-2)).Div(safe).Scale(limit / ((limit - 4) * (limit - 2))).
		Sqrt()
	mean := in.corrected(m, in.beta1)
	return tractable.Select(in.normalized(mean, v).Mul(factor), mean), sdk.State{"m": m, "v": v}
}

// amsgrad (Reddi et al. 2018, arXiv 1904.09237): by the largest second moment so far, after its
// correction as in optax.
func amsgrad(in input) (program.Value, sdk.State) {
	m, v := in.moments()
	largest := in.State["largest"].Max(in.corrected(v, in.beta2))
	u := in.corrected(m, in.beta1).Div(largest.Sqrt().Shift(in.eps))
	return u, sdk.State{"m": m, "v": v, "largest": largest}
}

// adabelief (Zhuang et al. 2020, arXiv 2010.07468): by the variance of the gradient about its mean.
func adabelief(in input) (program.Value, sdk.State) {
	m := in.mean("m", in.Gradient, in.beta1)
	v := in.mean("v", in.Gradient.Sub(m).Square(), in.beta2).Shift(in.eps)
	return in.normalized(in.corrected(m, in.beta1), v), sdk.State{"m": m, "v": v}
}

// yogi (Zaheer et al. 2018): the second moment changes by as much as a squared gradient at most.
// Both moments start at 1e-6.
func yogi(in input) (program.Value, sdk.State) {
	m, square, v := in.mean("m", in.Gradient, in.beta1), in.Gradient.Square(), in.State["v"]
	v = v.Sub(v.Sub(square).Sign().Mul(square).Scale(1 - in.beta2))
	return in.normalized(in.corrected(m, in.beta1), v), sdk.State{"m": m, "v": v}
}

func yogiStart(in input) sdk.State {
	return sdk.State{"m": in.b.Full(1e-6, in.Shape...), "v": in.b.Full(1e-6, in.Shape...)}
}

// adan (Xie et al. 2022, arXiv 2208.06677): Nesterov's momentum from differences of gradients. It
// has three rates: β₁, beta_difference and β₂. At the first step there is no difference.
func adan(in input) (program.Value, sdk.State) {
	middle := in.Float("beta_difference")
	difference := in.Step.Gt(in.b.Const(1)).Select(in.Gradient.Sub(in.State["last"]), in.b.Const(0))
	m, v := in.mean("m", in.Gradient, in.beta1), in.mean("v", difference, middle)
	n := in.mean("n", in.Gradient.Add(difference.Scale(1-middle)).Square(), in.beta2)
	ahead := in.corrected(m, in.beta1).Add(in.corrected(v, middle).Scale(1 - middle))
	return in.normalized(ahead, n), sdk.State{"m": m, "v": v, "n": n, "last": in.Gradient}
}

// lamb (You et al. 2020, arXiv 1904.00962): the step of Adam, as long as the tensor.
func lamb(in input) (program.Value, sdk.State) {
	m, v := in.moments()
	u := in.normalized(in.corrected(m, in.beta1), v)
	return u.Mul(in.trust(u)), sdk.State{"m": m, "v": v}
}

// lars (You et al. 2017, arXiv 1708.03888): a thousandth of the tensor's length along the gradient,
// then momentum.
func lars(in input) (program.Value, sdk.State) {
	m := in.State["m"].Scale(in.beta1).Add(in.Gradient.Mul(in.trust(in.Gradient.Scale(1000))))
	return m, sdk.State{"m": m}
}

// novograd (Ginsburg et al. 2019, arXiv 1905.11286): by the norm of the whole gradient. The second
// moment starts at the first norm.
func novograd(in input) (program.Value, sdk.State) {
	square := in.Gradient.Square().SumAll()
	v := in.Step.Gt(in.b.Const(1)).Select(in.mean("v", square, in.beta2), square)
	m := in.State["m"].Scale(in.beta1).Add(in.Gradient.Div(v.Sqrt().Shift(in.eps)))
	return m, sdk.State{"m": m, "v": v}
}

func novogradStart(in input) sdk.State {
	return sdk.State{"m": in.b.Zeros(in.Shape...), "v": in.b.Zeros()}
}

// sm3 (Anil et al. 2019, arXiv 1901.11150): sums of squares for each slice of each axis, so that a
// matrix needs a row and a column. A number's own sum is at most the least of its slices.
func sm3(in input) (program.Value, sdk.State) {
	var sum program.Value
	rank := len(in.Shape)
	for axis := range rank {
		s := in.State[sliceName(axis)].Broadcast(in.Shape, []int{axis})
		if axis == 0 {
			sum = s
		} else {
			sum = sum.Min(s)
		}
	}
	if rank == 0 {
		sum = in.State[sliceName(0)]
	}
	sum = sum.Add(in.Gradient.Square())
	u := in.mean("m", sum.Gt(in.b.Const(0)).Select(in.Gradient.Div(sum.Shift(in.eps).Sqrt()),
		in.b.Const(0)), in.beta1)
	next := sdk.State{"m": u, sliceName(0): sum}
	for axis := range rank {
		if others := program.OtherAxes(rank, []int{axis}); len(others) > 0 {
			next[sliceName(axis)] = sum.ReduceMax(others...)
		}
	}
	return u, next
}

func sm3Start(in input) sdk.State {
	start := sdk.State{"m": in.b.Zeros(in.Shape...), sliceName(0): in.b.Zeros()}
	for axis, size := range in.Shape {
		start[sliceName(axis)] = in.b.Zeros(size)
	}
	return start
}

// sliceName is the name of the sums of an axis.
func sliceName(axis int) string { return "axis" + string(rune('0'+axis)) }

// cautious (Liang et al. 2024, arXiv 2411.16085): AdamW without the elements whose step goes
// against the gradient; the others grow so that the mean is kept.
func cautious(in input) (program.Value, sdk.State) {
	m, v := in.moments()
	u := in.normalized(in.corrected(m, in.beta1), v)
	agrees := u.Mul(in.Gradient).Gt(in.b.Const(0)).Convert(program.Float)
	share := agrees.SumAll().Scale(1 / float64(u.Type().Size())).Max(in.b.Const(1e-3))
	return u.Mul(agrees).Div(share), sdk.State{"m": m, "v": v}
}

// grams (Cao et al. 2024, arXiv 2412.17107): the magnitude of Adam's step with the sign of the
// gradient.
func grams(in input) (program.Value, sdk.State) {
	m, v := in.moments()
	return in.normalized(in.corrected(m, in.beta1), v).Abs().Mul(in.Gradient.Sign()),
		sdk.State{"m": m, "v": v}
}

// laprop (Ziyin et al. 2020, arXiv 2002.04839): the gradient is normalized before the momentum.
func laprop(in input) (program.Value, sdk.State) {
	v := in.mean("v", in.Gradient.Square(), in.beta2)
	m := in.mean("m", in.normalized(in.Gradient, v), in.beta1)
	return in.corrected(m, in.beta1), sdk.State{"m": m, "v": v}
}

// mars (Yuan et al. 2024, arXiv 2411.10438), MARS-AdamW in its approximate form: the gradient of
// the step before stands for that of the same batch at the point before. The corrected gradient is
// at most 1 long.
func mars(in input) (program.Value, sdk.State) {
	const gamma = 0.025
	difference := in.Step.Gt(in.b.Const(1)).Select(in.Gradient.Sub(in.State["last"]), in.b.Const(0))
	g := in.Gradient.Add(difference.Scale(gamma * in.beta1 / (1 - in.beta1)))
	g = g.Div(g.Square().SumAll().Sqrt().Max(in.b.Const(1)))
	m, v := in.mean("m", g, in.beta1), in.mean("v", g.Square(), in.beta2)
	return in.normalized(in.corrected(m, in.beta1), v), sdk.State{"m": m, "v": v, "last": in.Gradient}
}

// lookahead (Zhang et al. 2019, arXiv 1907.08610) around Adam: every five steps the slow weights go
// half of the way to the fast ones, which go on from there. The step back is a direction, divided
// by the rate.
func lookahead(in input) (program.Value, sdk.State) {
	const every, part = 5, 0.5
	m, v := in.moments()
	u := in.normalized(in.corrected(m, in.beta1), v)
	slow, fast := in.State["slow"], in.X.Sub(u.Mul(in.Rate))
	turn := in.Step.Scale(1.0 / every)
	due := turn.Eq(turn.Round()).And(in.Rate.Gt(in.b.Const(0)))
	slow = due.Select(slow.Add(fast.Sub(slow).Scale(part)), slow)
	return due.Select(in.X.Sub(slow).Div(due.Select(in.Rate, in.b.Const(1))), u),
		sdk.State{"m": m, "v": v, "slow": slow}
}

func lookaheadStart(in input) sdk.State {
	return sdk.State{"m": in.b.Zeros(in.Shape...), "v": in.b.Zeros(in.Shape...), "slow": in.X}
}

// adamMini (Zhang et al. 2024, arXiv 2406.16793): one second moment for each row, an output neuron;
// vectors have one in all. Of a fused weight rows belong to one part each, so that this is the
// paper's division except for heads of queries and keys.
func adamMini(in input) (program.Value, sdk.State) {
	m := in.mean("m", in.Gradient, in.beta1)
	v := in.mean("v", in.Gradient.Square().MeanRow(), in.beta2)
	return in.normalized(in.corrected(m, in.beta1), v), sdk.State{"m": m, "v": v}
}

func adamMiniStart(in input) sdk.State {
	rows := append([]int(nil), in.Shape...)
	if len(rows) > 0 {
		rows[len(rows)-1] = 1
	}
	return sdk.State{"m": in.b.Zeros(in.Shape...), "v": in.b.Zeros(rows...)}
}

// mean is the running mean of a state with x.
func (in input) mean(state string, x program.Value, beta float64) program.Value {
	return in.State[state].Scale(beta).Add(x.Scale(1 - beta))
}

// moments are the running means m and v of the gradient and its square.
func (in input) moments() (m, v program.Value) {
	return in.mean("m", in.Gradient, in.beta1), in.mean("v", in.Gradient.Square(), in.beta2)
}

// correction is 1 − β^(t+ahead), by expm1 so that its digits are kept where β is close to 1.
func (in input) correction(beta, ahead float64) program.Value {
	if beta == 0 {
		return in.b.Const(1)
	}
	return in.Step.Shift(ahead).Scale(math.Log(beta)).Expm1().Neg()
}

// corrected is a running mean without its start at zero.
func (in input) corrected(m program.Value, beta float64) program.Value {
	return m.Div(in.correction(beta, 0))
}

// normalized is x by the root of the second moment v, corrected, plus ε.
func (in input) normalized(x, v program.Value) program.Value {
	return x.Div(in.corrected(v, in.beta2).Sqrt().Shift(in.eps))
}

// trust is ‖x‖/‖u‖, or 1 if one of them is 0.
func (in input) trust(u program.Value) program.Value {
	tensor, step := in.X.Square().SumAll().Sqrt(), u.Square().SumAll().Sqrt()
	some := tensor.Mul(step).Gt(in.b.Const(0))
	return some.Select(tensor.Div(some.Select(step, in.b.Const(1))), in.b.Const(1))
}

func filled(name string, v float64) func(input) sdk.State {
	return func(in input) sdk.State { return sdk.State{name: in.b.Full(v, in.Shape...)} }
}

// optimizer implements [sdk.Optimizer].
type optimizer struct{}

// Describe names the plugin and declares what a run may set.
func (optimizer) Describe() sdk.Description {
	var names []string
	for _, m := range methods {
		names = append(names, m.name)
	}
	return sdk.Description{
		Name:    "optimizers",
		Version: "0.1.0",
		Doc:     "Published optimizers in a few lines each.",
		Parameters: []sdk.Parameter{
			sdk.Choice("method", "nadam", names, "which of them"),
			sdk.Float("beta1", 0.9, 0, 0.9999, "decay rate of the first moment"),
			sdk.Float("beta2", 0.95, 0, 0.9999, "decay rate of the second moment"),
			sdk.Float("beta_difference", 0.92, 0, 0.9999, "adan: decay rate of differences of gradients"),
			sdk.Float("eps", 1e-8, 1e-16, 1, "keeps divisors away from zero"),
		},
	}
}

// chosen is the method of the settings.
func chosen(t sdk.Tensor) method {
	for _, m := range methods {
		if m.name == t.Text("method") {
			return m
		}
	}
	panic("the setting method has been checked")
}

// Init is the state of the method at the start.
func (optimizer) Init(b *program.Builder, x program.Value, t sdk.Tensor) (sdk.State, error) {
	m, start := chosen(t), sdk.State{}
	if m.init != nil {
		return m.init(input{UpdateInput: sdk.UpdateInput{X: x}, Tensor: t, b: b}), nil
	}
	for _, name := range m.state {
		start[name] = b.Zeros(t.Shape...)
	}
	return start, nil
}

// Update is a step of the method.
func (optimizer) Update(
	b *program.Builder, in sdk.UpdateInput, t sdk.Tensor,
) (program.Value, sdk.State, error) {
	u, next := chosen(t).update(input{in, t, b, t.Float("beta1"), t.Float("beta2"), t.Float("eps")})
	return u, next, nil
}

func main() { sdk.ServeOptimizer(optimizer{}) }

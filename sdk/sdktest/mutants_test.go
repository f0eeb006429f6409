package sdktest_test

import (
	"math"
	"math/rand/v2"
	"strings"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// rows is a complete quantizer of four bits with one scale for each row. It is correct; its hooks
// let each test add one mistake.
type rows struct {
	name       string
	parameters []sdk.Parameter
	// round is the rounding of x/s; nil rounds to nearest.
	round func(r program.Value) program.Value
	// most returns the value for the largest code; nil means the largest entry of a row.
	most func(x program.Value) program.Value
	// drawn is the rounding in training, given a uniform random number in [0, 1) for each element; nil
	// rounds as in evaluation.
	drawn func(r, u program.Value) program.Value
	// scale changes the scale that is used; reported changes the scale that is returned.
	scale, reported func(s, x program.Value) program.Value
	// finite reports which rows are treated as finite; zero is the divisor in a row of zeros.
	finite                 func(x program.Value) program.Value
	zero                   float64
	surrogate, mask, codes func(v program.Value) program.Value
	homogeneous            bool
	// short is subtracted from the largest code.
	short float64
	// grid returns the declared grid for a number of bits.
	grid   func(bits int) sdk.Grid
	refuse func(site sdk.Site) error
}

func good() rows {
	return rows{name: "rows", zero: 1, homogeneous: true,
		parameters: []sdk.Parameter{sdk.Int("bits", 4, 2, 8, "bits of a code")}}
}

func (q rows) Describe() sdk.Description {
	return sdk.Description{Name: q.name, Version: "1",
		Doc: "Symmetric integers, one scale for each row.", Parameters: q.parameters}
}

func apply(f func(program.Value) program.Value, v program.Value) program.Value {
	if f == nil {
		return v
	}
	return f(v)
}

func apply2(f func(s, x program.Value) program.Value, s, x program.Value) program.Value {
	if f == nil {
		return s
	}
	return f(s, x)
}

func (q rows) Quantize(b *program.Builder, x program.Value, site sdk.Site) (sdk.Quantized, error) {
	if q.refuse != nil {
		if err := q.refuse(site); err != nil {
			return sdk.Quantized{}, err
		}
	}
	top := math.Ldexp(1, site.Int("bits")-1) - 1
	amax := x.Abs().MaxRow()
	if q.most != nil {
		amax = q.most(x)
	}
	finite := amax.IsFinite()
	if q.finite != nil {
		finite = q.finite(x)
	}
	s := apply2(q.scale, amax.Div(b.Const(top)), x)
	tiny := s.Lt(b.Const(0x1p-126))
	s = finite.Select(tiny.Select(b.Const(0), s), b.Const(math.NaN()))
	r := x.Div(tiny.Select(b.Const(q.zero), s))
	if q.round == nil {
		q.round = program.Value.Round
	}
	codes := q.round(r)
	if q.drawn != nil && site.Training {
		bits := b.RandomBits(site.Noise, r.Shape()...).Shr(b.ConstUint(16)).Convert(program.Float)
		codes = q.drawn(r, bits.Shift(0.5).Scale(0x1p-16))
	}
	codes = codes.Clip(q.short-top, top-q.short)
	mask := finite.Broadcast(x.Shape(), []int{0, 1})
	var grid sdk.Grid
	if q.grid != nil {
		grid = q.grid(site.Int("bits"))
	}
	return sdk.Quantized{
		Grid:        grid,
		Value:       codes.Mul(s),
		Surrogate:   apply(q.surrogate, finite.Select(x, b.Const(0))),
		Codes:       apply(q.codes, finite.Select(codes, b.Const(0)).Convert(program.Int)),
		Scale:       apply2(q.reported, s, x),
		Mask:        apply(q.mask, mask),
		Homogeneous: q.homogeneous,
	}, nil
}

// clipping maps twice the mean magnitude of a row to the largest code, so that larger entries are
// clipped and get no gradient. shift moves the mask of the gradient to other entries, short is as
// in [rows], and threshold multiplies the threshold of the mask.
type clipping struct {
	shift     int
	short     float64
	threshold float64
}

func (clipping) Describe() sdk.Description {
	return sdk.Description{Name: "clipping", Version: "1",
		Doc: "Integers of four bits within a limit."}
}

func (q clipping) Quantize(b *program.Builder, x program.Value, _ sdk.Site) (sdk.Quantized, error) {
	const top = 7
	finite := x.Abs().MaxRow().IsFinite()
	s := x.Abs().MeanRow().Scale(2.0 / top)
	tiny := s.Lt(b.Const(0x1p-126))
	s = finite.Select(tiny.Select(b.Const(0), s), b.Const(math.NaN()))
	r := x.Div(tiny.Select(b.Const(1), s))
	codes := r.Round().Clip(q.short-top, top-q.short)
	mask := finite.And(r.Abs().Le(b.Const(top * max(q.threshold, 1))))
	passed := mask
	if d := x.Shape()[1]; q.shift > 0 && d > q.shift {
		n := x.Shape()[0]
		m := mask.Convert(program.Float)
		end, start := m.Slice([]int{0, d - q.shift}, []int{n, d}, []int{1, 1}),
			m.Slice([]int{0, 0}, []int{n, d - q.shift}, []int{1, 1})
		passed = end.Concatenate(1, start).Gt(b.Const(0.5))
	}
	return sdk.Quantized{
		Value: codes.Mul(s), Surrogate: passed.Select(x, b.Const(0)),
		Codes: finite.Select(codes, b.Const(0)).Convert(program.Int), Scale: s, Mask: mask,
		Homogeneous: true,
	}, nil
}

// packed is rows with Unpack.
type packed struct {
	rows
	unpack func(codes, scale program.Value) program.Value
}

func goodPacked() packed { return packed{rows: good()} }

func (q packed) Unpack(
	_ *program.Builder, codes, scale program.Value, _ sdk.Site,
) (program.Value, error) {
	if q.unpack != nil {
		return q.unpack(codes, scale), nil
	}
	return codes.Convert(program.Float).Mul(scale), nil
}

// learned has one trained step size for the whole tensor.
type learned struct {
	// init changes the initial step; shape is the shape of the trained parameter.
	init  func(s program.Value) program.Value
	shape func(site sdk.Site) []int
	// step changes only the gradient of the step; it must return the value s.
	step func(s program.Value) program.Value
}

func (learned) Describe() sdk.Description {
	return sdk.Description{Name: "learned", Doc: "A learned step size."}
}

func (q learned) InitTrained(
	b *program.Builder, x program.Value, site sdk.Site,
) (sdk.State, error) {
	s := x.Abs().SumAll().Scale(2 / math.Sqrt(7) / float64(x.Type().Size())).Max(b.Const(1e-8))
	if q.shape != nil {
		s = s.Broadcast(q.shape(site), nil)
	}
	return sdk.State{"step": apply(q.init, s)}, nil
}

func (q learned) Quantize(
	b *program.Builder, x program.Value, site sdk.Site,
) (sdk.Quantized, error) {
	s := site.Trained["step"]
	r := x.Div(s)
	finite := x.IsFinite()
	inside := r.Abs().Le(b.Const(7.5)).And(finite)
	q7 := r.Round().Clip(-7, 7)
	// The derivative of s·(clip(r) + constant) by s is round(r) − r inside and ±7 outside.
	clean := inside.Select(r, r.Sign().Scale(7))
	surrogate := finite.Select(apply(q.step, s).Mul(clean.Add(q7.Sub(clean).StopGradient())),
		b.Const(0))
	return sdk.Quantized{Value: finite.Select(q7.Mul(s), b.Const(math.NaN())), Surrogate: surrogate,
		Mask: inside, Codes: finite.Select(q7, b.Const(0))}, nil
}

// pushed is learned with a custom backward pass, which scales gradients depending on their sign and
// the rounding error.
type pushed struct {
	learned
	// dx and ds change the gradients.
	dx func(dx, x, dy program.Value) program.Value
	ds func(ds program.Value) program.Value
	// passes lets the gradients of clipped and non-finite entries pass.
	passes bool
}

func (q pushed) Quantize(
	b *program.Builder, x program.Value, site sdk.Site,
) (sdk.Quantized, error) {
	out, err := q.learned.Quantize(b, x, site)
	out.Surrogate = program.Value{}
	return out, err
}

func (q pushed) Backward(
	b *program.Builder, x, dy program.Value, site sdk.Site,
) (sdk.Gradients, error) {
	r := x.Div(site.Trained["step"])
	finite, level := x.IsFinite(), r.Round().Clip(-7, 7)
	inside := finite.And(r.Abs().Le(b.Const(7.5)))
	off := inside.Select(r.Sub(level), b.Const(0))
	dx := dy.Mul(dy.Sign().Mul(off).Scale(0.2).Shift(1))
	if q.dx != nil {
		dx = q.dx(dx, x, dy)
	}
	if !q.passes {
		dx = inside.Select(dx, b.Const(0))
	}
	ds := finite.Select(dy, b.Const(0)).Mul(inside.Select(level.Sub(r), r.Sign().Scale(7)))
	return sdk.Gradients{X: dx,
		Trained: sdk.State{"step": apply(q.ds, finite.Select(ds, b.Const(0)).SumAll())}}, nil
}

// kept is learned with a constraint on its step.
type kept struct {
	learned
	constraint func(v program.Value) program.Value
}

func (q kept) Constrain(
	_ *program.Builder, _ string, v program.Value, _ sdk.Site,
) (program.Value, error) {
	return q.constraint(v), nil
}

// positive keeps a step away from zero.
func positive(v program.Value) program.Value { return v.Max(v.Builder().Const(1e-9)) }

// observing has one scale for the whole tensor, from a moving average of the largest magnitudes.
type observing struct {
	// init returns the initial average and next the average after a step; now is the current largest
	// magnitude.
	init func(now program.Value) program.Value
	next func(old, now program.Value) program.Value
	// read and evaluate return the value that determines the scale in training and in evaluation.
	read, evaluate func(average, now program.Value) program.Value
	// seen replaces the largest magnitude.
	seen func(x program.Value) program.Value
	// counts adds a count of steps, which nothing reads; byRow keeps an average for each row.
	counts, byRow bool
}

func (observing) Describe() sdk.Description {
	return sdk.Description{Name: "observing", Doc: "A moving average of the largest magnitudes."}
}

func (q observing) now(x program.Value) program.Value {
	switch {
	case q.seen != nil:
		return q.seen(x)
	case q.byRow:
		return x.Abs().MaxRow()
	}
	return x.Abs().MaxAll()
}

func (q observing) InitState(b *program.Builder, x program.Value, _ sdk.Site) (sdk.State, error) {
	s := sdk.State{"average": apply(q.init, q.now(x))}
	if q.counts {
		s["steps"] = b.Const(0)
	}
	return s, nil
}

func (q observing) Quantize(
	b *program.Builder, x program.Value, site sdk.Site,
) (sdk.Quantized, error) {
	const top = 7
	average, now := site.State["average"], q.now(x)
	next := sdk.State{"average": average.Scale(0.9).Add(now.Scale(0.1))}
	if q.next != nil {
		next["average"] = q.next(average, now)
	}
	if q.counts {
		next["steps"] = site.State["steps"].Shift(1)
	}
	from := average
	if f := map[bool]func(average,
		now program.Value) program.Value{true: q.read, false: q.evaluate}[site.Training]; f != nil {
		from = f(average, now)
	}
	s := from.Scale(1.0 / top).Max(b.Const(0x1p-126))
	r, finite := x.Div(s), x.IsFinite()
	codes := r.Round().Clip(-top, top)
	inside := finite.And(r.Abs().Le(b.Const(top + 0.5)))
	return sdk.Quantized{
		Value: finite.Select(codes.Mul(s), b.Const(math.NaN())), Surrogate: inside.Select(x, b.Const(0)),
		Codes: finite.Select(codes, b.Const(0)), Scale: s, Mask: inside, Next: next,
	}, nil
}

// smoothing multiplies the columns of a weight by factors computed from statistics of both
// operands, divides the columns of its activation by them, and rounds rows to eight bits.
type smoothing struct {
	// factors returns them; nil means the square roots of the ratios of the largest magnitudes.
	factors func(site sdk.Site) program.Value
	// forgets omits undoing the factors in the result.
	forgets bool
}

func (smoothing) Describe() sdk.Description {
	return sdk.Description{Name: "smoothing",
		Doc: "Integers after outliers of activations have moved into weights."}
}

func (q smoothing) InitState(
	b *program.Builder, _ program.Value, site sdk.Site,
) (sdk.State, error) {
	least := b.Const(1e-5)
	f := site.Activations.Max.Max(least).Div(site.Weights.Max.Max(least)).Sqrt()
	if q.factors != nil {
		f = q.factors(site)
	}
	return sdk.State{"factors": f}, nil
}

func (q smoothing) Quantize(
	b *program.Builder, x program.Value, site sdk.Site,
) (sdk.Quantized, error) {
	f := site.State["factors"]
	if site.Role == sdk.RoleActivation {
		f = b.Const(1).Div(f)
	}
	y := x.Mul(f)
	largest := y.Abs().MaxRow()
	scale := largest.IsFinite().Select(largest.Scale(1.0/127).Max(b.Const(0x1p-126)),
		b.Const(math.NaN()))
	value := y.Div(scale).Round().Mul(scale)
	if !q.forgets {
		value = value.Div(f)
	}
	return sdk.Quantized{Value: value, Next: site.State}, nil
}

// panics panics for bits = 8.
func panics(site sdk.Site) error {
	if site.Int("bits") == 8 {
		var none []int
		_ = none[site.Int("bits")]
	}
	return nil
}

// last refuses the last block, and wide refuses rows as long as in real models.
func last(site sdk.Site) error {
	if site.Layer > 0 && site.Layer == site.Layers-1 {
		return sdk.Refuse("the last block is not supported")
	}
	return nil
}

func wide(site sdk.Site) error {
	if site.RowLen() > 512 {
		return sdk.Refuse("rows of more than 512 entries are not supported")
	}
	return nil
}

// unstable writes a different constant in each call.
func unstable(s, _ program.Value) program.Value { return s.Scale(1 + 1e-9*rand.Float64()) }

// momentum is a complete optimizer with one state tensor.
type momentum struct {
	// next changes the state that is returned, u the direction.
	next    func(in sdk.UpdateInput, m program.Value) program.Value
	u       func(in sdk.UpdateInput, m program.Value) program.Value
	initial float64
	accepts func(t sdk.Tensor) bool
}

func (momentum) Describe() sdk.Description {
	return sdk.Description{Name: "momentum", Doc: "Gradient descent with momentum."}
}

func (o momentum) Init(b *program.Builder, _ program.Value, t sdk.Tensor) (sdk.State, error) {
	return sdk.State{"m": b.Full(o.initial, t.Shape...)}, nil
}

func (o momentum) Update(
	b *program.Builder, in sdk.UpdateInput, t sdk.Tensor,
) (program.Value, sdk.State, error) {
	m := in.State["m"].Scale(0.9).Add(in.Gradient)
	u, next := m, m
	if o.u != nil {
		u = o.u(in, m)
	}
	if o.next != nil {
		next = o.next(in, m)
	}
	return u, sdk.State{"m": next}, nil
}

func (o momentum) Accepts(t sdk.Tensor) bool { return o.accepts == nil || o.accepts(t) }

// corrected has moving averages of gradients and their squares, with bias correction (Kingma and
// Ba, "Adam", 2015).
type corrected struct {
	shift float64 // added to the step
	bare  bool    // without the corrections
}

func (corrected) Describe() sdk.Description {
	return sdk.Description{Name: "corrected", Doc: "Adam."}
}

func (corrected) Init(b *program.Builder, _ program.Value, t sdk.Tensor) (sdk.State, error) {
	return sdk.State{"m": b.Zeros(t.Shape...), "v": b.Zeros(t.Shape...)}, nil
}

func (o corrected) Update(
	b *program.Builder, in sdk.UpdateInput, _ sdk.Tensor,
) (program.Value, sdk.State, error) {
	mean := func(old, x program.Value, beta float64) (next, unbiased program.Value) {
		next = old.Scale(beta).Add(x.Scale(1 - beta))
		if o.bare {
			return next, next
		}
		return next, next.Div(b.Const(1).Sub(b.Const(beta).Pow(in.Step.Shift(o.shift))))
	}
	m, direction := mean(in.State["m"], in.Gradient, 0.9)
	v, size := mean(in.State["v"], in.Gradient.Square(), 0.99)
	return direction.Div(size.Sqrt().Shift(1e-8)), sdk.State{"m": m, "v": v}, nil
}

// named is momentum whose factor depends on the name of the tensor.
type named struct{ momentum }

func (o named) Update(
	b *program.Builder, in sdk.UpdateInput, t sdk.Tensor,
) (program.Value, sdk.State, error) {
	u, next, err := o.momentum.Update(b, in, t)
	if strings.Contains(t.Name, "mlp") {
		u = u.Scale(2)
	}
	return u, next, err
}

// paced is momentum with its own learning rate.
type paced struct {
	momentum
	rate func(in sdk.UpdateInput) program.Value
}

func (o paced) Rate(_ *program.Builder, in sdk.UpdateInput, _ sdk.Tensor) (program.Value, error) {
	return o.rate(in), nil
}

// averaged is momentum that is evaluated at a moving average of x.
type averaged struct {
	momentum
	start  func(x program.Value) program.Value
	result func(x, mean program.Value) program.Value
	// keeps leaves the average unchanged.
	keeps bool
}

func zeros(x program.Value) program.Value { return x.Scale(0) }

func (o averaged) Init(b *program.Builder, x program.Value, t sdk.Tensor) (sdk.State, error) {
	state, err := o.momentum.Init(b, x, t)
	state["mean"] = apply(o.start, x)
	return state, err
}

func (o averaged) Update(
	b *program.Builder, in sdk.UpdateInput, t sdk.Tensor,
) (program.Value, sdk.State, error) {
	u, next, err := o.momentum.Update(b, in, t)
	next["mean"] = in.State["mean"]
	if !o.keeps {
		next["mean"] = in.State["mean"].Scale(0.5).Add(in.X.Scale(0.5))
	}
	return u, next, err
}

func (o averaged) Evaluate(
	_ *program.Builder, x program.Value, state sdk.State, _ sdk.Tensor,
) (program.Value, error) {
	if o.result != nil {
		return o.result(x, state["mean"]), nil
	}
	return state["mean"], nil
}

// collecting is momentum divided by the norm of the gradients of all tensors.
type collecting struct {
	momentum
	collect, use func(in sdk.UpdateInput) program.Value
	// least, or 1e-3 if that is larger, is added to the norm; a negative least adds nothing.
	least float64
}

func (o collecting) Collect(
	_ *program.Builder, in sdk.UpdateInput, _ sdk.Tensor,
) (sdk.State, error) {
	norm2 := in.Gradient.Square().SumAll()
	if o.collect != nil {
		norm2 = o.collect(in)
	}
	return sdk.State{"norm2": norm2}, nil
}

func (o collecting) Update(
	b *program.Builder, in sdk.UpdateInput, t sdk.Tensor,
) (program.Value, sdk.State, error) {
	u, next, err := o.momentum.Update(b, in, t)
	norm2 := in.Global["norm2"]
	if o.use != nil {
		norm2 = o.use(in)
	}
	norm := norm2.Sqrt()
	if o.least >= 0 {
		norm = norm.Shift(max(o.least, 1e-3))
	}
	return u.Div(norm), next, err
}

// probing uses, at every other update, the gradient at a point slightly up the slope.
type probing struct {
	offset, u func(in sdk.UpdateInput) program.Value
}

func (probing) Describe() sdk.Description { return sdk.Description{Name: "probing"} }

func (probing) Init(*program.Builder, program.Value, sdk.Tensor) (sdk.State, error) {
	return nil, nil
}

func (probing) ProbeAt(sdk.Tensor) sdk.Due { return sdk.Due{First: 1, Next: 1, Every: 2} }

func (p probing) Probe(
	_ *program.Builder, in sdk.UpdateInput, _ sdk.Tensor,
) (program.Value, error) {
	if p.offset != nil {
		return p.offset(in), nil
	}
	return in.Gradient.Scale(0.01), nil
}

func (p probing) Update(
	_ *program.Builder, in sdk.UpdateInput, _ sdk.Tensor,
) (program.Value, sdk.State, error) {
	if p.u != nil {
		return p.u(in), nil, nil
	}
	return in.Probed, nil, nil
}

// sampling divides the gradient by the root of an average of squared gradients with sampled labels,
// which are taken at every other update.
type sampling struct {
	u func(in sdk.UpdateInput, h program.Value) program.Value
}

func (sampling) Describe() sdk.Description { return sdk.Description{Name: "sampling"} }

func (sampling) Init(b *program.Builder, _ program.Value, t sdk.Tensor) (sdk.State, error) {
	return sdk.State{"h": b.Zeros(t.Shape...)}, nil
}

func (sampling) SampleAt(sdk.Tensor) sdk.Due { return sdk.Due{First: 1, Next: 1, Every: 2} }

func (s sampling) Update(
	b *program.Builder, in sdk.UpdateInput, _ sdk.Tensor,
) (program.Value, sdk.State, error) {
	h := in.Probing.Gt(b.Const(0)).Select(in.State["h"].Add(in.Probed.Square()).Scale(0.5),
		in.State["h"])
	if s.u != nil {
		return s.u(in, h), sdk.State{"h": h}, nil
	}
	return in.Gradient.Div(h.Shift(0.1).Sqrt()), sdk.State{"h": h}, nil
}

// tallied multiplies the gradient by a count up to 3, which is stored as int8.
type tallied struct{ by float64 }

func (tallied) Describe() sdk.Description { return sdk.Description{Name: "tallied"} }

func (tallied) Init(b *program.Builder, _ program.Value, t sdk.Tensor) (sdk.State, error) {
	return sdk.State{"n": b.Zeros(t.Shape...)}, nil
}

func (tallied) Storage(sdk.Tensor) map[string]sdk.Storage {
	return map[string]sdk.Storage{"n": sdk.StoreInt8}
}

func (c tallied) Update(
	b *program.Builder, in sdk.UpdateInput, _ sdk.Tensor,
) (program.Value, sdk.State, error) {
	n := in.State["n"].Shift(c.by).Min(b.Const(3 * c.by))
	return in.Gradient.Mul(n), sdk.State{"n": n}, nil
}

// thirds assumes that all parts of a weight are as large as the first.
type thirds struct{ momentum }

func (o thirds) Update(
	b *program.Builder, in sdk.UpdateInput, t sdk.Tensor,
) (program.Value, sdk.State, error) {
	u, next, err := o.momentum.Update(b, in, t)
	if n := len(t.Parts); n > 0 {
		u = u.Reshape(n, t.Parts[0].Rows, t.Shape[1]).Reshape(t.Shape...)
	}
	return u, next, err
}

// whitened has a preconditioner for one side, which is renewed every three updates.
type whitened struct {
	// basis changes the result of a refresh, use the preconditioner in an update.
	basis, use func(q program.Value) program.Value
	delay      int // updates by which the first refresh is later
}

func (whitened) Describe() sdk.Description {
	return sdk.Description{Name: "whitened", Doc: "One-sided Shampoo."}
}

func (whitened) Accepts(t sdk.Tensor) bool { return len(t.Shape) == 2 }

func (whitened) Init(b *program.Builder, _ program.Value, t sdk.Tensor) (sdk.State, error) {
	n := t.Shape[0]
	return sdk.State{"l": b.Zeros(n, n), "root": identity(b, n)}, nil
}

func identity(b *program.Builder, n int) program.Value {
	table := make([]float64, n*n)
	for i := range n {
		table[i*n+i] = 1
	}
	return b.Table(table, n, n)
}

func (whitened) Observe(_ *program.Builder, in sdk.UpdateInput, _ sdk.Tensor) (sdk.State, error) {
	g := in.Gradient
	return sdk.State{"l": in.State["l"].Scale(0.9).Add(g.MatMul(g.Transpose(1, 0)).Scale(0.1))}, nil
}

func (o whitened) Refresh(
	b *program.Builder, in sdk.RefreshInput, _ bool, t sdk.Tensor,
) (sdk.State, error) {
	n := t.Shape[0]
	l := in.State["l"].Add(identity(b, n).Scale(1e-6))
	values, vectors := l.EighValues(), l.EighVectors()
	scaled := vectors.Mul(values.Max(b.Const(1e-6)).Sqrt().Sqrt().Reshape(1, n).Pow(b.Const(-1)))
	return sdk.State{"root": apply(o.basis, scaled.MatMul(vectors.Transpose(1, 0)))}, nil
}

func (o whitened) RefreshAt(sdk.Tensor) sdk.Due {
	return sdk.Due{First: 1 + o.delay, Next: 3 + o.delay, Every: 3}
}

func (o whitened) Update(
	_ *program.Builder, in sdk.UpdateInput, _ sdk.Tensor,
) (program.Value, sdk.State, error) {
	return apply(o.use, in.State["root"]).MatMul(in.Gradient), in.State, nil
}

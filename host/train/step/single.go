package step

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/host/compute/stage"
	"github.com/cage-qat/cage/sdk/spec"
)

// Dispatch selects the number of executables that a step is compiled into.
type Dispatch string

// The values of Dispatch.
const (
	// DispatchByDevice means Chain on the CPU and Single elsewhere.
	DispatchByDevice Dispatch = ""
	// Chain runs several executables in sequence, and the host checks loss and norm before the update.
	Chain Dispatch = "chain"
	// Single runs one executable, and the host then reads one small vector. Steps in which the host
	// takes part are dispatched as in Chain.
	Single Dispatch = "single"
)

type single struct {
	exec    *stage.Executable
	jobs    []spec.Job
	collect []spec.Job // values that optimizers collect before the update
	scalars []string
}

// readName is the output that the host reads: the losses of the micro-batches, the
// squared norms of the gradients, and the measures of the update.
const readName = "read"

// single compiles the step for one mode of the method. If anything is quantized it includes the
// statistics: a variant without them would take longer to compile than thousands of such sums.
func (c *Compiled) single(mode cage.Mode) (*single, error) {
	if w, ok := c.singles[mode]; ok {
		return w, nil
	}
	rules := c.plan.rules(updateKind{mode: mode, statistics: len(c.plan.quantizedParams()) > 0})
	jobs, err := cage.Jobs(rules, cage.Updating)
	if err != nil {
		return nil, err
	}
	collect, err := cage.Jobs(rules, cage.Collecting)
	if err != nil {
		return nil, err
	}
	scalars := stage.ScalarNames(slices.Concat(jobs, collect))
	w := &single{jobs: jobs, collect: collect, scalars: scalars}
	if w.exec, err = c.compile(c.plan.singleStage(w, "step ("+string(mode)+")")); err != nil {
		return nil, err
	}
	c.singles[mode] = w
	return w, nil
}

// singleStage maps all trained tensors, the optimizers' states, the tokens of all micro-batches and
// the scalars to the new parameters and states, and to the vector that the host reads. If loss or
// norm is not finite, it returns parameters and states unchanged. It consists of the stages of the
// chain, and computes the same.
func (p *Plan) singleStage(w *single, name string) stage.Stage {
	specs := inputSpecs(p.updatedTensors(), asNamed, true) // replaced by the step
	in := slices.Concat(specs, inputSpecs(p.frozen(), asNamed, false), p.teacherSpecs())
	for _, spec := range p.batchSpecs(p.FullPrecision) {
		dims := append([]int{p.Accumulate}, spec.Shape.Dimensions...)
		spec.Shape = shapes.Make(spec.Shape.DType, dims...)
		in = append(in, spec)
	}
	in = append(in, stage.ScalarSpec(w.scalars))
	in = append(in, p.stepSpecs()...)
	return stage.Stage{Name: name, Inputs: in, Build: func(in stage.Nodes) stage.Nodes {
		have := maps.Clone(in)
		add := func(s stage.Stage) stage.Nodes {
			out := s.Lower(have)
			maps.Copy(have, out)
			return out
		}
		var quantized []engine.Spec
		if len(p.quantizeInputs()) > 0 {
			quantized = add(p.quantizeStage()).Specs()
			if len(p.Adapters) > 0 {
				add(p.mergedStage())
			}
		}
		maps.Copy(have, p.accumulateGradients(have))
		if p.replicas > 1 {
			add(p.reduceStage())
		}
		add(p.finishStage(quantized))
		losses, norms := have[lossName], have[normsName]
		for i, k := range p.keys.optimizer {
			have[k.node] = graph.Reshape(graph.Slice(have[optimizerKeysName], graph.AxisElem(i)), 2)
		}

		// Scalars derived from these are computed in float64, as on the host.
		scalars := stage.Nodes{}
		for i, name := range w.scalars {
			of := graph.Slice(in[stage.ScalarsName], graph.AxisRange(i, i+1))
			scalars[name] = graph.Reshape(of)
		}
		if _, read := scalars[cage.InputClip]; read && p.Clip > 0 {
			norm := graph.Sqrt(sum64(norms))
			factor := graph.Div(graph.Const(norm.Graph(), p.Clip), graph.AddScalar(norm, clipEpsilon))
			factor = graph.Min(factor, graph.OnesLike(factor))
			scalars[cage.InputClip] = graph.ConvertDType(factor, shapes.Float32)
		}
		if _, read := scalars[spec.InputLoss]; read { // as in [Plan.setLoss]
			weights := make([]float64, p.lossCount())
			weights[0] = 1
			if d := p.Distillation; d != nil {
				weights[0], weights[1] = d.Weight, 1-d.Weight
			}
			n := losses.Shape().Size() / len(weights)
			of := graph.Reshape(graph.ConvertDType(losses, shapes.Float64), n, len(weights))
			means := graph.DivScalar(graph.ReduceSum(of, 0), float64(n))
			by := graph.Constant(losses.Graph(), weights, len(weights))
			loss := graph.ReduceSum(graph.Mul(means, by))
			scalars[spec.InputLoss] = graph.ConvertDType(loss, shapes.Float32)
		}
		run := func(jobs []spec.Job) (out stage.Nodes) {
			if len(jobs) == 0 {
				return stage.Nodes{}
			}
			var list []*graph.Node
			for _, name := range stage.ScalarNames(jobs) {
				list = append(list, graph.Reshape(scalars[name], 1))
			}
			if len(list) > 0 {
				have[stage.ScalarsName] = graph.Concatenate(list, 0)
			}
			return stage.OfJobs(name, jobs).Lower(have)
		}
		collected := run(w.collect)[stage.MeasuresName]
		totals, n := stage.Nodes{}, 0 // in the order of the rules, as on the host
		for _, j := range w.collect {
			for _, out := range j.Program.Outputs {
				v := graph.Slice(collected, graph.AxisRange(n, n+1))
				v = graph.ConvertDType(graph.Reshape(v), shapes.Float64)
				n++
				if total := totals[out.Name]; total != nil {
					v = graph.Add(total, v)
				}
				totals[out.Name] = v
			}
		}
		for name, total := range totals {
			scalars[name] = graph.ConvertDType(total, shapes.Float32)
		}

		out := run(w.jobs)
		read := []*graph.Node{losses, norms}
		if measures := out[stage.MeasuresName]; measures != nil {
			read = append(read, measures)
			delete(out, stage.MeasuresName)
		}
		for _, s := range p.quantizerStates() {
			out[s.Name] = cmp.Or(have[nextName(s.Name)], have[s.Name]) // some come from searches
		}
		ok := graph.And(allFinite(losses), allFinite(norms))
		for _, spec := range specs {
			before := in[spec.Name]
			next := cmp.Or(out[spec.Name], before) // the state of an idle method is unchanged
			out[spec.Name] = engine.Elementwise(func(of []*graph.Node) *graph.Node {
				return graph.Where(ok, of[0], of[1])
			}, next, before)
		}
		out[readName] = graph.Concatenate(read, 0)
		return out
	}}
}

func sum64(v *graph.Node) *graph.Node {
	return graph.ReduceSum(graph.ConvertDType(v, shapes.Float64))
}

// allFinite reports whether no element of a float32 vector is infinite or NaN: in float64 their sum
// cannot overflow.
func allFinite(v *graph.Node) *graph.Node { return graph.IsFinite(sum64(v)) }

func (c *Compiled) runSingle(s *State, b *Batches, set Settings) (res Result, err error) {
	w, err := c.single(c.mode(set))
	if err != nil {
		return res, err
	}
	t := maps.Clone(s.Tensors)
	defer keepState(s.Tensors, t)
	tokens, err := b.uploadStacked()
	if err != nil {
		return res, err
	}
	// The clip factor, the loss and the collected sums are computed on the device.
	scalars := c.scalars(set, 0, 0)
	for _, j := range w.collect {
		for _, o := range j.Program.Outputs {
			scalars[o.Name] = 0
		}
	}
	values, err := scalars.Vector(w.scalars...)
	if err != nil {
		return res, err
	}
	if t[stage.ScalarsName], err = engine.Upload(c.dev, values, len(values)); err != nil {
		return res, err
	}
	if err := c.addStepInputs(t, set); err != nil {
		return res, err
	}
	if n := c.plan.Accumulate; !c.plan.FullPrecision {
		keys := c.plan.keys.activations
		if err := c.addBatchKeys(t, activationKeysName, keys, set.Step, 0, n, n); err != nil {
			return res, err
		}
	}
	began := time.Now()
	s.replace()
	res.Overhead = time.Since(began)
	if err = w.exec.Run(t, c.teacher, stage.Tensors{tokensName: tokens}); err != nil {
		return res, err
	}
	read, err := engine.Download[float32](t[readName])
	if err != nil {
		return res, err
	}
	s.inconsistent = false
	sums := make([]float64, c.plan.lossCount())
	losses := c.plan.Accumulate * len(sums)
	for i, loss := range read[:losses] {
		sums[i%len(sums)] += float64(loss)
	}
	c.plan.setLoss(sums, &res)
	res.setNorms(read[losses : losses+len(c.plan.Rules)])
	if !res.checkFinite() {
		return res, nil
	}
	measures := stage.Measures{}
	stage.ReadMeasures(w.jobs, read[losses+len(c.plan.Rules):], measures)
	if !set.Statistics {
		delete(measures, cage.OutputErrorNorm2)
	}
	c.setMeasures(measures, &res)
	return res, nil
}

// accumulateGradients builds the graph of all micro-batches on one replica. It returns their
// losses, in the order in which the host reads them, and the tensors of [Plan.summed]. in has the
// inputs of the forward pass, and the tokens and keys of all micro-batches.
func (p *Plan) accumulateGradients(in stage.Nodes) stage.Nodes {
	kind := gradientKind{full: p.FullPrecision, local: true}
	reads, own := p.gradientSpecs(kind.full), p.batchSpecs(kind.full)
	if p.Accumulate == 1 {
		one := stage.Nodes{}
		for _, spec := range own {
			one[spec.Name] = graph.Reshape(in[spec.Name], spec.Shape.Dimensions...)
		}
		for _, spec := range reads {
			one[spec.Name] = in[spec.Name]
		}
		return p.gradientStage(kind).Lower(one)
	}
	g := in.Graph()
	kind.sum = true
	list, gradient := p.summed(kind.full), p.gradientStage(kind)
	state := []*graph.Node{graph.BroadcastToDims(Tensor{}.identity(g), p.Accumulate, p.lossCount())}
	for _, t := range list {
		identity := graph.BroadcastToDims(t.identity(g), t.Dims...)
		state = append(state, part(identity, p.divided(t.Name, t.Dims)))
	}
	var fixed []*graph.Node
	for _, spec := range slices.Concat(own, reads) {
		fixed = append(fixed, part(in[spec.Name], engine.HasRows(in[spec.Name])))
	}
	body := func(i *graph.Node, fixed, state []*graph.Node) []*graph.Node {
		one := stage.Nodes{}
		for j, spec := range own {
			row := graph.Gather(fixed[j], graph.Reshape(i, 1))
			one[spec.Name] = graph.Reshape(row, spec.Shape.Dimensions...)
		}
		for j, spec := range reads {
			one[spec.Name] = whole(fixed[len(own)+j], engine.HasRows(in[spec.Name]))
		}
		for j, t := range list {
			one[t.Name] = whole(state[1+j], p.divided(t.Name, t.Dims))
		}
		out := gradient.Lower(one)
		row := graph.InsertAxes(out[lossName], 0)
		losses := graph.DynamicUpdateSlice(state[0], row, []*graph.Node{i, graph.ZerosLike(i)})
		next := []*graph.Node{losses}
		for _, t := range list {
			next = append(next, part(out[t.Name], p.divided(t.Name, t.Dims)))
		}
		return next
	}
	state = engine.Loop(g, p.Accumulate, fixed, state, body)
	sums := stage.Nodes{lossName: graph.Reshape(state[0], -1)}
	for j, t := range list {
		sums[t.Name] = whole(state[1+j], p.divided(t.Name, t.Dims))
	}
	return sums
}

func part(x *graph.Node, divided bool) *graph.Node {
	if divided {
		return engine.Rows(x)
	}
	return x
}

func whole(x *graph.Node, divided bool) *graph.Node {
	if divided {
		return engine.Gather(x)
	}
	return x
}

// identity returns the identity element: −∞ for a maximum, −0 for a sum (−0 + 0 would be 0).
func (t Tensor) identity(g *graph.Graph) *graph.Node {
	if t.Maximum {
		return graph.Const(g, float32(math.Inf(-1)))
	}
	return graph.Const(g, float32(math.Copysign(0, -1)))
}

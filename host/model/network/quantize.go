package network

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// Quantizers are the quantizers in a model's program.
type Quantizers struct {
	// Calls are the quantizers by the names of parameters, of activation sites, and of operands of
	// backward products ([OperandSite.String]). The first operand of each is the tensor, a matrix, and
	// its first result the quantized one. The program has an input [InputOf] for each other operand.
	Calls map[string]*program.Call
	// Next returns the next states of the quantizers of activations, by site, which the program
	// returns as outputs [InputOf] the site and the name of the result. The operands are as in Calls.
	Next map[string]*program.Call
	// From maps operands of quantizers that are results of Next at earlier sites, not inputs, to the
	// names of these outputs.
	From map[string]string
	// Unquantized gives activations and weights to the quantizers of the backward pass as they were
	// before they were quantized. Those of a weight that no call quantizes are an input [InputOf] the
	// weight and [Before].
	Unquantized bool
	// Coded has the weights whose products with activations that have codes are those of codes.
	Coded map[string]bool
}

// Names of the results of a quantizer whose value is codes times scales, and of inputs [InputOf] a
// weight in [Quantizers.Coded].
const (
	Integers = passes.OutputIntegers
	Scale    = passes.OutputScale
)

// Before is the name of the operand that a parameter was before it was quantized.
const Before = "before"

// Key returns a text that differs for different quantizers.
func (q Quantizers) Key() string {
	var key strings.Builder
	fmt.Fprintln(&key, q.Unquantized, q.Coded, q.From)
	for _, list := range []map[string]*program.Call{q.Calls, q.Next} {
		for _, site := range slices.Sorted(maps.Keys(list)) {
			fmt.Fprintln(&key, site, list[site].Meaning.Hash())
			if back := list[site].Adjoint; back != nil {
				fmt.Fprintln(&key, back.Hash())
			}
		}
	}
	return key.String()
}

// InputOf returns the name of the input of a model's program for an operand of a quantizer.
func InputOf(site, operand string) string {
	return strings.ReplaceAll(site, " ", "-") + "/" + operand
}

// ownerOf returns the name of the parameter or activation to which an input belongs.
func ownerOf(input string) string {
	site, _, _ := strings.Cut(input, "/")
	return site[strings.LastIndexByte(site, '-')+1:]
}

// inputs returns the inputs of a program with parameters besides these.
func (q Quantizers) inputs(params []architecture.Param) (list []program.Input) {
	types := map[string]program.Type{}
	for _, calls := range []map[string]*program.Call{q.Calls, q.Next} {
		for site, c := range calls {
			for _, in := range c.Meaning.Inputs[1:] {
				types[InputOf(site, in.Name)] = in.Type
			}
		}
	}
	for _, p := range params {
		if q.readsBefore(p.Name) && q.Calls[p.Name] == nil {
			types[InputOf(p.Name, Before)] = program.FloatType(p.Dims...)
		}
		if q.Coded[p.Name] {
			types[InputOf(p.Name, Integers)] = program.FloatType(p.Dims...)
			types[InputOf(p.Name, Scale)] = program.FloatType(p.Dims[0], 1)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(types)) {
		if _, computed := q.From[name]; computed {
			continue
		}
		list = append(list, program.Input{Name: name, Type: types[name]})
	}
	return list
}

// readsBefore reports whether the backward pass quantizes a weight as it was before.
func (q Quantizers) readsBefore(weight string) bool {
	return q.Unquantized &&
		q.Calls[OperandSite{sdk.ProductInputGradient, sdk.RoleWeight, weight}.String()] != nil
}

// OperandSite identifies an operand of a product in the backward pass of a linear layer. Name names
// the weight (also if the operand is the gradient of the layer's output) or the activation site.
type OperandSite struct {
	Product sdk.Product
	Role    sdk.Role
	Name    string
}

// String returns the site's name in graphs and records.
func (s OperandSite) String() string {
	return string(s.Product) + " " + string(s.Role) + " " + s.Name
}

// An operand is what products read in place of a parameter or of an activation.
type operand struct {
	value, before value // Q(x) and x
	codes         codes // absent if there are none
}

// operands returns x in the form that operandOf reads. Gradients flow through the value alone.
func (q operand) operands() []value {
	list := []value{q.value, q.before.StopGradient()}
	if q.codes.integers.Valid() {
		list = append(list, q.codes.integers.StopGradient(), q.codes.scale.StopGradient())
	}
	return list
}

func operandOf(in []value) operand {
	q := operand{value: in[0], before: in[1]}
	if len(in) > 2 {
		q.codes = codes{in[2], in[3]}
	}
	return q
}

func (n *network) quantized(site string, x value) operand {
	q := n.quantizedBy(n.quantizers.Calls[site], site, x)
	if slices.Contains(n.record, site) {
		rows := n.batch * n.Context
		x := q.value.Reshape(rows, int(q.value.Type().Size())/rows)
		n.result(site, n.withoutPadding(site, x))
	}
	return q
}

func (n *network) quantizedBy(c *program.Call, site string, x value) operand {
	if c == nil {
		return operand{value: x, before: x}
	}
	of := x.Reshape(c.Meaning.Inputs[0].Type.Shape...)
	of = n.withoutPadding(site, of)
	if next := n.quantizers.Next[site]; next != nil {
		for i, v := range n.apply(next, site, of) {
			n.result(InputOf(site, next.Meaning.Outputs[i].Name), v)
		}
	}
	results := n.apply(c, site, of)
	q := operand{value: results[0].Reshape(x.Shape()...), before: of.Reshape(x.Shape()...)}
	for i, o := range c.Meaning.Outputs {
		switch o.Name {
		case Integers:
			q.codes.integers = results[i]
		case Scale:
			q.codes.scale = results[i]
		}
	}
	return q
}

// withoutPadding sets the padding in an activation to zero, so that statistics over a batch do not
// depend on it.
func (n *network) withoutPadding(site string, x value) value {
	documents, ok := n.shared[padding]
	if !ok {
		documents, ok = n.shared[Segments]
	}
	if _, weight := n.params[site]; weight || !ok {
		return x
	}
	used := documents.Ge(n.ConstInt(0)).Convert(program.Float)
	return x.Mul(used.Reshape(n.batch*n.Context, 1))
}

// apply calls c, the quantizer of a site or one of its programs.
func (n *network) apply(c *program.Call, site string, x value) []value {
	args := []value{x}
	for _, in := range c.Meaning.Inputs[1:] {
		args = append(args, n.params[InputOf(site, in.Name)])
	}
	return n.Call(c, args...)
}

func (n *network) quantize(site string, x value) value {
	return n.quantized(site, x).value
}

// weight returns the quantized value of a parameter.
func (n *network) weight(name string) value { return n.quantize(name, n.params[name]) }

// linear returns the products of an activation and of weights, Q(x)·Q(w)ᵀ for each.
func (n *network) linear(p, site string, x value, weights ...string) []value {
	q := n.quantized(p+site, x)
	return lists.Map(weights, func(name string) value { return n.product(q, p+site, p+name) })
}

// product returns x·wᵀ for a weight. If operands of its backward pass are quantized, with
// quantizers Q of their own for each operand, the adjoints are
//
//	dx = Q(dy)·Q(wᵀ)ᵀ,  dw = Q(dyᵀ)·Q(xᵀ)ᵀ.
func (n *network) product(x operand, site, name string) value {
	w, calls := n.weight(name), n.quantizers.Calls
	sites := []OperandSite{{sdk.ProductInputGradient, sdk.RoleGradient, name},
		{sdk.ProductInputGradient, sdk.RoleWeight, name},
		{sdk.ProductWeightGradient, sdk.RoleGradient, name},
		{sdk.ProductWeightGradient, sdk.RoleActivation, site}}
	ins, args := []string{"x", "w", "weight", "activation"}, []value{x.value, w, w, x.value}
	if n.quantizers.readsBefore(name) {
		args[2] = n.params[name]
		if given, ok := n.params[InputOf(name, Before)]; ok {
			args[2] = given
		}
	}
	if calls[sites[3].String()] != nil {
		if n.quantizers.Unquantized {
			args[3] = x.before
		}
		if calls[site] == nil {
			args[3] = n.withoutPadding(site, args[3])
		}
	}
	forward := func(in []value) value { return linear(in[0], in[1]) }
	if n.quantizers.Coded[name] && x.codes.integers.Valid() {
		forward = func(in []value) value {
			return ofCodes(in[0], in[1], codes{in[4], in[5]}, codes{in[6], in[7]})
		}
		ins = append(ins, "x_integers", "x_scale", "w_integers", "w_scale")
		args = append(args, x.codes.integers, x.codes.scale, n.params[InputOf(name, Integers)],
			n.params[InputOf(name, Scale)])
	}
	quantizes := false
	for _, s := range sites {
		if c := calls[s.String()]; c != nil {
			quantizes = true
			for _, in := range c.Meaning.Inputs[1:] {
				input := InputOf(s.String(), in.Name)
				ins, args = append(ins, input), append(args, n.params[input])
			}
		}
	}
	if !quantizes {
		return forward(args)
	}
	meaning, _, err := written(Linear, ins, func(in []value) ([]string, []value) {
		return []string{"y"}, []value{forward(in)}
	}, args...)
	if err != nil {
		n.Fail(err)
		return x.value
	}
	y := program.FloatType(x.value.Shape()[0], w.Shape()[0])
	adjoint, err := n.productAdjoint(sites, ins, args, y)
	if err != nil {
		n.Fail(err)
		return x.value
	}
	return n.Call(&program.Call{Name: Linear, Meaning: meaning, Adjoint: adjoint}, args...)[0]
}

// productAdjoint writes the adjoint of [network.product], given those of its operands that have a
// name, and the type of the result.
func (n *network) productAdjoint(sites []OperandSite, ins []string, args []value,
	y program.Type) (*program.Program, error) {
	b := program.NewSimplifier(Linear + ".adjoint")
	inner := network{Builder: b, params: map[string]value{}}
	for i, name := range ins {
		inner.params[name] = b.Input(name, args[i].Type())
	}
	dy := b.Input("d.y", y)
	quantize := func(i int, x value) value {
		if c := n.quantizers.Calls[sites[i].String()]; c != nil {
			return inner.apply(c, sites[i].String(), x)[0]
		}
		return x
	}
	transposed := func(x value) value { return x.Transpose(1, 0) }
	weight, activation := transposed(inner.params["weight"]), transposed(inner.params["activation"])
	b.Output("d.x", linear(quantize(0, dy), quantize(1, weight)))
	b.Output("d.w", linear(quantize(2, transposed(dy)), quantize(3, activation)))
	return b.Build()
}

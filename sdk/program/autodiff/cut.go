package autodiff

import (
	"slices"

	"github.com/cage-qat/cage/sdk/program"
)

// cut chooses the residuals, in the order of their values.
//
// It computes a minimum cut of a flow network, as "min-cut rematerialization" in
// compilers for training does. Every value that does not depend on the cotangent is a
// pipe, whose width is its bytes. Pipes of inputs, and of values that the forward pass
// computes anyway, begin at the source, so that the backward pass does not repeat their
// work. The pipe of a value that may be computed on either side begins at its operands.
// The pipes of what the backward pass reads end at the sink. The pipes of the smallest cut
// are the values to keep.
func (s *splitter) cut() []program.ID {
	dependent := s.dependent()
	primal := s.p.Needs(s.p.Outputs[:s.outputs])
	backward := s.p.Needs(s.p.Outputs[s.outputs:])
	constant := s.constant()

	n := s.p.NumValues()
	source, sink := 2*n, 2*n+1 // value v is the pipe from 2v to 2v+1
	flow := newNetwork(2*n + 2)
	read := make([]bool, n)
	for _, o := range s.p.Outputs[s.outputs:] {
		read[o.Value] = true
	}
	for v := range n {
		id := program.ID(v)
		node := s.p.Node(id)
		switch {
		case !backward[v]:
			continue
		case dependent[v]:
			if node != nil {
				for _, a := range node.Args {
					read[a] = true
				}
			}
			continue
		case constant[v]:
			continue
		}
		flow.connect(2*v, 2*v+1, s.weight(id))
		if node == nil || (primal[v] && !free(node, s.p)) {
			flow.connect(source, 2*v, unlimited)
			continue
		}
		for _, a := range node.Args {
			flow.connect(2*int(a)+1, 2*v, unlimited)
		}
	}
	for v := range n {
		if read[v] && !dependent[v] {
			flow.connect(2*v+1, sink, unlimited)
		}
	}
	return flow.cutPipes(source, sink, n)
}

// dependent marks the values that depend on the cotangent.
func (s *splitter) dependent() []bool {
	marks := make([]bool, len(s.p.Inputs))
	marks[s.inputs] = true
	return program.Interpret(s.p, marks, func(_ program.ID, _ *program.Node, args []bool) bool {
		return slices.Contains(args, true)
	})
}

// constant marks the values that follow from constants alone.
func (s *splitter) constant() []bool {
	return program.Interpret(s.p, make([]bool, len(s.p.Inputs)), func(_ program.ID, _ *program.Node, args []bool) bool {
		return !slices.Contains(args, false)
	})
}

// free reports whether a value of the forward pass may as well be made again.
func free(n *program.Node, p *program.Program) bool {
	switch n.Op {
	case program.OpReshape, program.OpBroadcast, program.OpSlice, program.OpTranspose:
		return true
	case program.OpConvert:
		return p.TypeOf(n.Args[0]).DType == program.Bool
	}
	return false
}

// weight is the price of keeping a value: its bytes, a bool taking one. Among
// equals an input is preferred, then an output of the forward pass, which may be
// there anyway, then anything but a reshape or broadcast of something else.
func (s *splitter) weight(id program.ID) int64 {
	t := s.p.TypeOf(id)
	bytes := t.Size()
	if t.DType != program.Bool {
		bytes *= 4
	}
	const ranks = 4
	price := bytes * ranks
	node := s.p.Node(id)
	if node == nil {
		return price
	}
	for _, o := range s.p.Outputs[:s.outputs] {
		if o.Value == id {
			return price + 1
		}
	}
	if node.Op == program.OpReshape || node.Op == program.OpBroadcast {
		return price + 3
	}
	return price + 2
}

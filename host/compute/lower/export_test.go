package lower

import "github.com/cage-qat/cage/sdk/program"

// LowerPlain is Lower as for a backend other than the Go backend.
var LowerPlain = lowerFor

// Fused returns the fused passes of a source and a quantizer, and how they store floats.
func Fused(q Quantizer, s Source) (forward, backward *program.Program, memory InMemory, err error) {
	p := q.(programQuantizer).inBFloat16()
	if forward, err = p.fusedForward(s, p.parts.Forward); err != nil {
		return nil, nil, nil, err
	}
	backward, err = p.fusedBackward(s)
	return forward, backward, p.fusedMemory(s), err
}

// InPieces is how programs over rows are computed on the CPU in float32.
var InPieces = inPieces

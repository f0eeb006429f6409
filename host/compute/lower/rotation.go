package lower

import (
	"fmt"

	"github.com/cage-qat/cage/host/compute/pass/rotation"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// Rotating is a [Quantizer] whose values may end in a rotation of their rows. That
// rotation can be left out if another operand of the same product is rotated alike.
type Rotating interface {
	Quantizer
	// KeepRotated returns the quantizer with its values left rotated, so that it does not
	// rotate them back at the end; nil if the values end in no rotation.
	KeepRotated() (*Rotated, error)
}

// Rotated is a quantizer whose values stay rotated: they are H·Q(x), and the gradients that it takes are those with
// respect to H·Q(x). H rotates each block of Block elements of a row.
type Rotated struct {
	Quantizer
	Block int
	// Saved is how many rotations of the whole tensor a forward and a backward pass
	// together save; it is negative if they need more.
	Saved float64
}

// KeepRotated finds the rotation in the program, and in the surrogate's gradient.
func (q programQuantizer) KeepRotated() (*Rotated, error) {
	block := rotation.Ending(q.Program, sdk.OutputValue)
	if block == 0 {
		return nil, nil
	}
	full, half := q.QuantizerProgram, q.QuantizerProgram
	var err error
	if half.Program, err = rotation.Undo(full.Program, block, sdk.OutputValue, sdk.OutputSurrogate); err != nil {
		return nil, err
	}
	half.Unpack = nil // it returns Q(x), not H·Q(x)
	u, err := split(half)
	if err != nil {
		return nil, fmt.Errorf("without its last rotation: %w", err)
	}
	rotated := func(parts ...*program.Program) (sum int64) {
		for _, p := range parts {
			sum += rotation.Elements(p)
		}
		return sum
	}
	saved := rotated(q.parts.Forward, q.parts.Backward) - rotated(u.parts.Forward, u.parts.Backward)
	size := full.Program.Inputs[0].Type.Size()
	return &Rotated{u, block, float64(saved) / float64(size)}, nil
}

package microscaling

import (
	"slices"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// Blocks divides the rows of a tensor, its last axis, into blocks of consecutive
// entries that share a scale.
type Blocks struct {
	shape []int // of the tensor
	split []int // shape with two axes, blocks and entries, in place of the last one
}

// NewBlocks returns blocks of size entries in a tensor of the given shape, which has at
// least one axis. The last block of a row is padded with zeros if the length of the row is
// not a multiple of size.
func NewBlocks(shape []int, size int) Blocks {
	last := len(shape) - 1
	blocks := (shape[last] + size - 1) / size
	return Blocks{slices.Clone(shape), append(slices.Clone(shape[:last]), blocks, size)}
}

func (b Blocks) padded() []int {
	shape, last := slices.Clone(b.shape), len(b.shape)-1
	shape[last] = b.split[last] * b.split[last+1]
	return shape
}

// Split reshapes […,row] to […,blocks,size], padding rows, for numbers of any element type.
// Reductions of the last axis that keep it, such as MaxRow, then give one number for each block, in
// a shape that broadcasts with the blocks.
func (b Blocks) Split(v program.Value) program.Value {
	pad, last := b.padded(), len(b.shape)-1
	if pad[last] -= b.shape[last]; pad[last] > 0 {
		zeros := v.Builder().Zeros(pad...)
		if t := v.Type().DType; t != program.Float { // for floats no operation, which would change hashes
			zeros = zeros.Convert(t)
		}
		v = v.Concatenate(last, zeros)
	}
	return v.Reshape(b.split...)
}

// Join is the inverse of Split, for values of any element type.
func (b Blocks) Join(v program.Value) program.Value {
	v = v.Reshape(b.padded()...)
	if slices.Equal(b.padded(), b.shape) {
		return v
	}
	return v.Slice(make([]int, len(b.shape)), b.shape, slices.Repeat([]int{1}, len(b.shape)))
}

// Spread broadcasts v, which has one element for each block, over the entries of the
// blocks. The result has the shape of the tensor.
func (b Blocks) Spread(v program.Value) program.Value {
	return b.Join(v.Broadcast(b.split, nil))
}

// Unpack returns the result of [Decode], rotated back as the site's setting "rotation" requires.
func Unpack(codes, scale program.Value, site sdk.Site, size int) (program.Value, error) {
	rotation, err := NewRotation(site.Text("rotation"), site.RowLen())
	if err != nil {
		return program.Value{}, err
	}
	return rotation.Apply(Decode(codes, scale, site, size)), nil
}

// Decode returns the E2M1 numbers of the given codes, times the scales of their blocks of size
// entries, in the shape of the site.
func Decode(codes, scale program.Value, site sdk.Site, size int) program.Value {
	blocks := NewBlocks(site.Shape, size)
	return blocks.Join(DecodeE2M1(blocks.Split(codes.Convert(program.Float))).Mul(scale))
}

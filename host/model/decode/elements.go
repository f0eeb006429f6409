package decode

import (
	"math"

	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/internal/linalg"
)

// normsBehind reports whether a block normalizes what its layers return, not what they are given.
func (n *Network) normsBehind() bool { return n.s.Kind == architecture.KindOLMo2 }

// normalize sets the rows of y, which may be x, to x·gain/√(mean(x²)+epsilon).
func (n *Network) normalize(y, x linalg.MatrixOf[float32], gain []float32) {
	for i := range x.Rows {
		n.normalizeRow(y.Data[i*y.RowStride:][:len(gain)], x.Data[i*x.RowStride:][:len(gain)], gain)
	}
}

func (n *Network) normalizeRow(y, x, gain []float32) {
	square := linalg.Dot(x, x)
	scale := float32(1 / math.Sqrt(float64(square)/float64(len(x))+n.s.NormEps))
	for i, v := range x {
		y[i] = v * scale * gain[i]
	}
}

// turn turns the points of a head by the angles of a position, and puts all first coordinates before all second ones.
// spare is as long as the head.
func (n *Network) turn(head, spare []float32, position int) {
	half := len(head) / 2
	cos, sin := n.cos[position*half:][:half], n.sin[position*half:][:half]
	copy(spare, head)
	for i := range half {
		a, b := spare[i], spare[half+i]
		if n.s.RopePairs == architecture.Interleaved {
			a, b = spare[2*i], spare[2*i+1]
		}
		head[i], head[half+i] = a*cos[i]-b*sin[i], a*sin[i]+b*cos[i]
	}
}

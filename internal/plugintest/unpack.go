package plugintest

import (
	"fmt"
	"math"
	"testing"

	"github.com/cage-qat/cage/internal/golden"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// Unpacks checks on every machine that the plugin's unpack program makes of codes
// and scales exactly the value that was quantized, for rows of the given lengths
// (short, odd and regular ones when there are none): ordinary rows, rows of zeros,
// of one number, of very large and very small numbers, and with NaN and ±Inf. A
// zero may have either sign, as the operations leave it open.
func Unpacks(t *testing.T, q sdk.Packer, given map[string]any, lengths ...int) {
	t.Helper()
	author, ok := q.(sdk.Quantizer)
	if !ok {
		t.Fatalf("%T is no quantizer", q)
	}
	if len(lengths) == 0 {
		lengths = []int{1, 3, 31, 32, 33, 128, 640}
	}
	Each(t, func(t *testing.T, m Machine) {
		for _, d := range lengths {
			for name, x := range map[string]golden.Tensor{"finite": finiteRows(d), "with NaN and Inf": brokenRows(d)} {
				t.Run(fmt.Sprintf("%d/%s", d, name), func(t *testing.T) { m.checkUnpack(t, author, given, x) })
			}
		}
	})
}

func (m Machine) checkUnpack(t *testing.T, q sdk.Quantizer, given map[string]any, x golden.Tensor) {
	t.Helper()
	built, err := sdk.BuildQuantizer(q, sdk.Site{Role: sdk.RoleWeight, Name: "w", Shape: x.Shape, Values: Settings(t, q.Describe(), given)})
	if err != nil {
		t.Fatal(err)
	}
	out := m.Run(t, built.Program, map[string]reference.Tensor{sdk.InputX: reference.Floats(x.Data, x.Shape...)})
	back := m.Run(t, built.Unpack, map[string]reference.Tensor{sdk.OutputCodes: out[sdk.OutputCodes], sdk.OutputScale: out[sdk.OutputScale]})
	Near(t, "unpacked", back[sdk.OutputValue].Float64s(), out[sdk.OutputValue].Float64s(), 0)
}

// finiteRows are two rows of normal numbers and rows of zeros, of equal, of large and
// of small numbers.
func finiteRows(d int) golden.Tensor {
	x := Normal(uint64(d), 6, d)
	for j := range d {
		x.Data[2*d+j] = 0
		x.Data[3*d+j] = -0.375
		x.Data[4*d+j] *= 0x1p50
		x.Data[5*d+j] *= 0x1p-100
	}
	return x
}

// brokenRows are normal numbers among which there are NaN, ±Inf, −0 and zero rows.
func brokenRows(d int) golden.Tensor {
	x := Normal(uint64(d)+1, 5, d)
	for i, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), math.Copysign(0, -1)} {
		x.Data[i*d+d/2] = bad
	}
	for j := range d {
		x.Data[4*d+j] = 0
	}
	return x
}

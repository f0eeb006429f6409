package export

import (
	"fmt"
	"math"
	"slices"

	"github.com/cage-qat/cage/host/deploy/export/pack"
)

// nvfp4Scales are the scales of NVFP4 as compressed-tensors stores them: an element is
//
//	E2M1(code) · float32(E4M3(block) / global)
//
// so that global is the reciprocal of what NVFP4 multiplies with elsewhere.
type nvfp4Scales struct {
	global float32
	blocks map[float32]byte // by the scale of a block
	exact  bool             // every scale is float32(block/global)
}

// neighbours is how many numbers of float32 on either side of an estimate are tried: the
// quotient that the estimate comes from was rounded once.
const neighbours = 2

// findNVFP4 finds the two levels of scales in the scales of a whole tensor. The largest of
// them is one of the 126 numbers of E4M3 over the global scale, which leaves few candidates
// for that: the first of which gives all scales is taken. Where none does, the largest
// scale becomes 448 and the others the nearest.
func findNVFP4(scales []float32) (nvfp4Scales, bool) {
	distinct := slices.Clone(scales)
	slices.Sort(distinct)
	distinct = slices.Compact(distinct)
	largest := distinct[len(distinct)-1]
	if distinct[0] < 0 {
		return nvfp4Scales{}, false
	}
	if largest == 0 { // a tensor of zeros
		return nvfp4Scales{1, map[float32]byte{0: 0}, true}, true
	}
	values := pack.E4M3Values()
	for _, top := range slices.Backward(values[1:]) {
		global := top / largest
		for range neighbours {
			global = math.Nextafter32(global, 0)
		}
		for range 2*neighbours + 1 {
			if s := nvfp4With(distinct, global, values); s.exact {
				return s, true
			}
			global = math.Nextafter32(global, math.MaxFloat32)
		}
	}
	s := nvfp4With(distinct, values[len(values)-1]/largest, values)
	return s, s.global-s.global == 0
}

// nvfp4With gives each scale the nearest E4M3 number under a global scale, half way between two the one with the even
// code, as a cast to E4M3 and the plugin nvfp4 do. When one of
// the first scales is not met, the rest still get theirs, unless exactness is all that
// matters: the caller looks at exact.
func nvfp4With(scales []float32, global float32, values []float32) nvfp4Scales {
	out := nvfp4Scales{global, make(map[float32]byte, len(scales)), true}
	for _, s := range scales {
		at := float32(float64(s) * float64(global))
		code, _ := slices.BinarySearch(values, at)
		if code == len(values) {
			code--
		} else if code > 0 {
			below, above := at-values[code-1], values[code]-at
			if below < above || below == above && code%2 == 1 {
				code--
			}
		}
		out.blocks[s] = byte(code)
		out.exact = out.exact && values[code]/global == s
	}
	return out
}

// of are the scales of the blocks of a grid.
func (s nvfp4Scales) of(g *Grid) ([]byte, error) {
	g, err := floatBlocks(g, nvfp4Block)
	if err != nil {
		return nil, err
	}
	out := make([]byte, len(g.Scales))
	for i, scale := range g.Scales {
		code, ok := s.blocks[scale]
		if !ok {
			return nil, fmt.Errorf("the scale %v was not there when the scales were chosen", scale)
		}
		out[i] = code
	}
	return out, nil
}

package plugintest

import (
	"math"
	"testing"

	"github.com/cage-qat/cage/sdk/microscaling"
)

// ShortScales fails the test unless scales, each times a factor, are positive numbers of
// the type that scale_dtype names.
func ShortScales(t testing.TB, dtype string, scale []float64, factors ...float64) {
	t.Helper()
	bits, least := 24, -149
	switch microscaling.ScaleType(dtype) {
	case microscaling.ScaleBF16:
		bits, least = 8, -133
	case microscaling.ScaleF16:
		bits, least = 11, -24
	}
	for _, s := range scale {
		for _, factor := range factors {
			v := s * factor
			_, exponent := math.Frexp(v)
			unit := math.Ldexp(1, max(least, exponent-bits))
			if !(v > 0) || math.Mod(v, unit) != 0 || bits == 11 && v > 65504 {
				t.Errorf("the scale %v times %v is no number of %s", s, factor, dtype)
			}
		}
	}
}

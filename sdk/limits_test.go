package sdk_test

import (
	"testing"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

func TestSiteLimits(t *testing.T) {
	l := sdk.SiteLimits([]int{1024, 4096})
	if l.Elements != 64<<22+1<<22 || l.Total != 4096<<22+1<<30 || l.Work != 1024<<34+1<<34 || l.Constants != 1<<22 {
		t.Errorf("got %+v", l)
	}
	huge := sdk.SiteLimits([]int{1 << 15, 1 << 15})
	if huge.Elements != program.MaxSize || huge.Work != 1<<50 {
		t.Errorf("got %+v", huge)
	}
	if l := sdk.SiteLimits(nil); l.Elements != 64+1<<22 || l.Constants != 4+1<<16 {
		t.Errorf("for a scalar: %+v", l)
	}
}

// Every shape has limits that are above zero and that no arithmetic has overflown, those of optimizers above the others.
func TestTensorLimits(t *testing.T) {
	for _, shape := range [][]int{nil, {1}, {1 << 31}, {1 << 16, 1 << 15}, {1 << 20, 1}} {
		site, tensor := sdk.SiteLimits(shape), sdk.TensorLimits(shape)
		if site.Elements <= 0 || site.Total <= 0 || site.Work <= 0 || site.Constants <= 0 || site.Linalg || tensor.Linalg {
			t.Errorf("%v: %+v, %+v", shape, site, tensor)
		}
		if tensor.Elements < site.Elements || tensor.Total < site.Total || tensor.Work < site.Work || tensor.Constants < site.Constants ||
			tensor.Elements > program.MaxSize || tensor.Constants > 1<<22 {
			t.Errorf("%v: %+v is below %+v", shape, tensor, site)
		}
	}
}

package client_test

import (
	"testing"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/client"
	"github.com/cage-qat/cage/sdk/spec"
)

// TestArrangeShared checks that two parameters of a site that are the same shared parameter have
// one place, which the host fills once, and all other tensors places of their own.
func TestArrangeShared(t *testing.T) {
	shape := []int{3}
	p := client.ArrangeSites([]client.PlacedSite{{Site: sdk.Site{Name: "w", Shape: shape},
		Answer: spec.Quantizer{Trained: []spec.Tensor{{Name: "a", Shared: "s", Shape: shape},
			{Name: "b", Shared: "s", Shape: shape}, {Name: "c", Shape: shape}}}}}).Sites[0]
	at := p.TrainedAt
	if len(at) != 3 || at[0] != at[1] || at[0] == at[2] || at[0] == p.X || at[2] == p.X {
		t.Errorf("the weight is at %d, the parameters are at %v", p.X, at)
	}
}

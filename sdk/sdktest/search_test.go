package sdktest_test

import (
	"math"
	"sync"
	"testing"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/sdktest"
)

// seeking is [observing] with a search for the largest magnitude; mistake selects a mistake.
type seeking struct {
	mistake string
	kept    *sync.Map // forbidden memory outside the state
}

func (seeking) Describe() sdk.Description {
	return sdk.Description{Name: "seeking", Doc: "A search for the largest magnitude."}
}

func (q seeking) SearchState(sdk.Site) ([]sdk.StateTensor, int, error) {
	list := []sdk.StateTensor{{Name: "average"}}
	if q.mistake == "useless state" || q.mistake == "same state" {
		list = append(list, sdk.StateTensor{Name: "useless", Shape: []int{2}})
	}
	return list, 4, nil
}

func (q seeking) Quantize(
	b *program.Builder, x program.Value, site sdk.Site,
) (sdk.Quantized, error) {
	if site.Role != sdk.RoleWeight || site.Product != sdk.ProductForward {
		return sdk.Quantized{}, sdk.Refuse("for weights in the forward product only")
	}
	out, err := (observing{}).Quantize(b, x, site)
	out.Next = nil
	return out, err
}

func (q seeking) Search(in sdk.SearchInput, site sdk.Site) error {
	largest := float32(0)
	for _, v := range in.X {
		largest = max(largest, v, -v)
	}
	next := in.Next["average"]
	switch q.mistake {
	case "adds":
		next[0] += largest
		return nil
	case "sometimes":
		if in.Step > 0 {
			return nil
		}
	case "leftovers":
		if next[0] == 7 {
			return nil
		}
	case "kept":
		if old, ok := q.kept.Load(site.Name); ok && in.Step > 0 {
			largest = (largest + old.(float32)) / 2
		}
		q.kept.Store(site.Name, largest)
	case "x":
		in.X[0] /= 2
	case "in place":
		in.State["average"][0] = largest
	case "infinite":
		largest *= math.MaxFloat32
	case "drifts":
		largest = in.State["average"][0]*1.5 + largest
	case "useless state":
		in.Next["useless"][0], in.Next["useless"][1] = in.State["useless"][0]+1, 0
	case "same state":
		in.Next["useless"][0], in.Next["useless"][1] = 3, 0
	}
	next[0] = largest
	return nil
}

// TestSearchMistakes checks that each mistake fails its check, and that no check fails without one.
func TestSearchMistakes(t *testing.T) {
	for mistake, check := range map[string]string{
		"": "", "adds": "search", "sometimes": "search", "leftovers": "search", "kept": "search",
		"x": "search", "in place": "search",
		"infinite": "state", "drifts": "state", "useless state": "state", "same state": "state",
	} {
		t.Run(mistake, func(t *testing.T) {
			report := sdktest.CheckQuantizer(sdktest.NewQuantizer(seeking{mistake, &sync.Map{}}))
			failed := map[string]sdktest.Failure{}
			for _, c := range report.Checks {
				if c.Status == sdktest.Fail {
					failed[c.Name] = c.Failures[0]
				}
			}
			if _, found := failed[check]; found != (mistake != "") || mistake == "" && len(failed) > 0 {
				t.Errorf("failed: %v; want %q", failed, check)
			}
		})
	}
}

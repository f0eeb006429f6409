package sdktest_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/sdktest"
	"github.com/cage-qat/cage/sdk/spec"
)

func find(t *testing.T, r sdktest.Report, name string) sdktest.Check {
	t.Helper()
	for _, c := range r.Checks {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("there is no check %q in\n%s", name, r)
	return sdktest.Check{}
}

// TestLimitsOfHosts checks that programs that hosts refuse fail in an author's own test.
func TestLimitsOfHosts(t *testing.T) {
	testlevel.Long(t, "checks large programs")
	q := good()
	q.surrogate = func(v program.Value) program.Value {
		for range 2100 {
			v = v.Scale(1.5).Scale(1 / 1.5)
		}
		return v
	}
	c := find(t, sdktest.SomeOfQuantizer(q, []string{"shapes"}), "shapes")
	if c.Status != sdktest.Fail || !strings.Contains(c.Failures[0].Message, "want at most 4096") {
		t.Errorf("%+v", c)
	}
}

// TestLargeIntegers checks that large integers are tried within their range, and that the trial
// ends.
func TestLargeIntegers(t *testing.T) {
	testlevel.Long(t, "tries many settings")
	q := good()
	q.parameters = append(q.parameters,
		sdk.Int("seed", 3_000_000_000, 0, 1<<32-1, "of nothing"),
		sdk.Int("offset", -3_000_000_000, -1<<32, -1<<31, "of nothing"),
		sdk.Int("only", 1<<52, 1<<52, 1<<52, "of nothing"))
	if r := sdktest.CheckQuantizer(sdktest.NewQuantizer(q)); r.Failed() {
		t.Errorf("\n%s", r)
	}
}

// rounding has no codes.
type rounding struct{}

func (rounding) Describe() sdk.Description {
	return sdk.Description{Name: "rounding", Version: "1", Doc: "Rounds."}
}

func (rounding) Quantize(_ *program.Builder, x program.Value, _ sdk.Site) (sdk.Quantized, error) {
	return sdk.Quantized{Value: x.Round()}, nil
}

// TestNothingToCheck checks that a check that does not apply is skipped, with a note.
func TestNothingToCheck(t *testing.T) {
	c := find(t, sdktest.SomeOfQuantizer(rounding{}, []string{"codes"}), "codes")
	if text, _ := json.Marshal(c); c.Status != sdktest.Skip ||
		!strings.HasPrefix(c.Notes[0], "optional: there are no Codes") {
		t.Errorf("%s", text)
	}
	q := good()
	q.refuse = func(sdk.Site) error { return errors.New("the codebook is missing") }
	c = find(t, sdktest.CheckQuantizer(sdktest.NewQuantizer(q)), "fixed points")
	for _, note := range c.Notes {
		if strings.Contains(note, "holds") {
			t.Errorf("nothing was tried, but %+v", c)
		}
	}
}

// TestMain makes the garbage collector run less often: the reference implementation makes much
// garbage and keeps little, so the collector would take half of the time.
func TestMain(m *testing.M) {
	debug.SetGCPercent(800)
	os.Exit(m.Run())
}

// TestReasonsOfSkippedChecks checks that a check's own reason to skip is the only one.
func TestReasonsOfSkippedChecks(t *testing.T) {
	r := sdktest.SomeOfQuantizer(good(), []string{"nearest"},
		sdktest.Claim(sdk.Claim{Name: sdk.ClaimAnyRounding}))
	c := find(t, r, "nearest")
	if c.Status != sdktest.Skip || len(c.Notes) != 1 || c.Notes[0] != "any_rounding is claimed" {
		t.Errorf("%+v", c)
	}
}

// TestUntil checks that the kit ends soon after the context, though the plugin still answers.
func TestUntil(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	subject, asked := sdktest.NewQuantizer(good()), 0
	programs := subject.Programs
	subject.Programs = func(site sdk.Site) (spec.Quantizer, error) {
		if asked++; asked == 3 {
			stop()
		}
		return programs(site)
	}
	r := sdktest.CheckQuantizer(subject, sdktest.Until(ctx))
	if last := r.Checks[len(r.Checks)-1]; asked > 4 || last.Status != sdktest.Skip ||
		last.Notes[0] != "context canceled" {
		t.Errorf("%d requests; the last check: %+v", asked, last)
	}
}

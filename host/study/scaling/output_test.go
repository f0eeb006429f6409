package scaling

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cage-qat/cage/host/study/figure"
)

var sampleFit = sync.OnceValues(func() (*Fit, error) {
	return Run(context.Background(), wide(9, 1e-3), Options{Baseline: "QuEST", Bootstrap: 10})
})

// sample returns a fit of synthetic points, computed once. Its points may be replaced.
func sample(t testing.TB) *Fit {
	t.Helper()
	fit, err := sampleFit()
	if err != nil {
		t.Fatal(err)
	}
	out := *fit
	out.Points = slices.Clone(fit.Points)
	return &out
}

func TestWrite(t *testing.T) {
	fit := sample(t)
	for _, markdown := range []bool{false, true} {
		var b strings.Builder
		if err := fit.Write(&b, markdown); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			"60 points", "alpha", "QuEST", "95 % intervals from 10 bootstrap replicates",
			"of 1125 starting points", "gain", threeDecimals(fit.Effs[1].Value),
		} {
			if !strings.Contains(b.String(), want) {
				t.Errorf("%q is missing in:\n%s", want, b.String())
			}
		}
		if strings.Contains(b.String(), "|---|") != markdown {
			t.Error("tables of Markdown belong into Markdown only")
		}
	}
}

func TestGain(t *testing.T) {
	fit := sample(t)
	for _, e := range fit.Effs {
		if e.Method != "CAGE" {
			if e.Gain != nil {
				t.Errorf("%s has a gain", e.Name)
			}
			continue
		}
		want := e.Value / fit.Eff(Group{"QuEST", e.Bits})
		if e.Gain == nil || e.Gain.Value != want || !(e.Gain.Low < want && want < e.Gain.High) {
			t.Errorf("gain of %s: %+v, want %v inside its interval", e.Name, e.Gain, want)
		}
	}
}

func TestPareto(t *testing.T) {
	point := func(n, bits, loss float64) Point {
		return Point{Group: Group{"m", bits}, N: n, D: 1, Loss: loss}
	}
	points := []Point{point(8, 16, 1), point(8, 4, 2), point(8, 2, 3), point(16, 2, 2.5),
		point(20, 4, 2.2), point(16, 2, 2.6), point(4, 8, 2)}
	var losses []float64
	for _, p := range Pareto(points) {
		losses = append(losses, p.Loss)
	}
	if len(losses) != 3 || losses[0] != 3 || losses[1] != 2 || losses[2] != 1 {
		t.Errorf("front %v, want 3, 2, 1", losses)
	}
}

func TestFigures(t *testing.T) {
	fit := sample(t)
	var names []string
	for _, f := range fit.Figures() {
		names = append(names, f.Name)
		var b bytes.Buffer
		if err := figure.Draw(&b, figure.SVG, f.Picture, f.Options); err != nil {
			t.Errorf("%s: %v", f.Name, err)
		}
		if !strings.Contains(b.String(), "CAGE") {
			t.Errorf("%s does not name CAGE", f.Name)
		}
	}
	if got := strings.Join(names, " "); got != "loss-size efficiency loss-bytes" {
		t.Errorf("figures %s", got)
	}
	// Full precision alone has no efficiencies to show.
	alone := fitOrFail(t, wide(9, 0)[:9], Options{Prior: DefaultPrior})
	if got := alone.Figures(); len(got) != 2 {
		t.Errorf("%d figures of full precision alone", len(got))
	}
	for _, f := range alone.Figures() {
		if err := figure.Draw(io.Discard, figure.SVG, f.Picture, figure.Options{}); err != nil &&
			!errors.Is(err, figure.ErrNoData) {
			t.Error(err)
		}
	}
}

// TestTracks checks that curves follow the points: equal tokens per parameter, or equal tokens.
func TestTracks(t *testing.T) {
	fit := sample(t)
	tracks := fit.tracks()
	if len(tracks) != 3 || !tracks[0].perParameter || tracks[0].tokens != 360 {
		t.Errorf("tracks %+v", tracks)
	}
	for _, n := range []float64{1e6, 2e6, 4e6} {
		for _, d := range []float64{1e8, 1.02e9} {
			fit.Points = append(fit.Points, Point{Group: Group{"BF16", 16}, N: n, D: d, Loss: 3})
		}
	}
	fit.Points = fit.Points[len(fit.Points)-6:]
	if tracks = fit.tracks(); len(tracks) != 2 || tracks[0].perParameter || tracks[0].d(7) != 1.02e9 {
		t.Errorf("tracks %+v", tracks)
	}
	if c := fit.curve(Group{"BF16", 16}, tracks[0], Bytes); len(c.Points) < 2 ||
		math.Abs(c.Points[0].X-2e6) > 1 {
		t.Errorf("curve %+v", c.Points)
	}
}

package schedule_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/schedule"
	"github.com/cage-qat/cage/internal/golden"
)

func TestGoldenTables(t *testing.T) {
	f := golden.Load(t, "testdata/lr_schedule.json")
	kinds := map[schedule.Kind]int{}
	f.RunList(t, "tables", func(t *testing.T, o golden.Object) {
		kind := schedule.Kind(o.String("kind"))
		kinds[kind]++
		c := schedule.Default(kind, o.Float("peak"), o.Int("total"))
		c.Warmup = o.Int("warmup")
		c.Div = o.FloatOr("div", c.Div)
		c.FinalDiv = o.FloatOr("final_div", c.FinalDiv)
		c.FinalFrac = o.FloatOr("final_frac", c.FinalFrac)
		c.FinalFrac = o.FloatOr("final", c.FinalFrac)
		c.DecayFrac = o.FloatOr("decay_frac", c.DecayFrac)
		c.Shape = schedule.Shape(o.StringOr("shape", string(c.Shape)))
		s := build(t, c)
		o.Close("values", rates(s, o.Tensor("values").Len()))
	})
	if kinds[schedule.OneCycleCos] == 0 || kinds[schedule.LinearWarmupCosine] == 0 || kinds[schedule.WSD] == 0 {
		t.Errorf("tables per kind: %v, want some of each", kinds)
	}
}

func build(t *testing.T, c schedule.Config) schedule.Schedule {
	t.Helper()
	s, err := schedule.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func rates(s schedule.Schedule, n int) []float64 {
	out := make([]float64, n)
	for k := range out {
		out[k] = s.Rate(k)
	}
	return out
}

// TestEveryShortRun builds every kind for every warm-up of short runs: no rate
// is negative, above the peak or not a number, and none rises after the peak
// (but for the step past the end, which the one-cycle cosine turns up at).
func TestEveryShortRun(t *testing.T) {
	for _, kind := range schedule.Kinds() {
		for total := 1; total <= 12; total++ {
			for warmup := 0; warmup <= total; warmup++ {
				c := schedule.Default(kind, 2, total)
				c.Warmup = warmup
				c.DecayFrac = float64(total-warmup) / float64(total)
				s := build(t, c)
				name := fmt.Sprintf("%s, %d of %d steps of warm-up", kind, warmup, total)
				for k := 0; k <= total; k++ {
					r := s.Rate(k)
					if !(r >= 0 && r <= 2*(1+1e-15)) {
						t.Fatalf("%s: rate(%d) = %v", name, k, r)
					}
					if k > warmup && k < total && r > s.Rate(k-1) {
						t.Fatalf("%s: rises from %v to %v at step %d", name, s.Rate(k-1), r, k)
					}
				}
				if s.Rate(-1) != s.Rate(0) || s.Rate(total+1) != s.Rate(total) || s.Rate(math.MaxInt) != s.Rate(total) {
					t.Fatalf("%s: steps outside the run are not those of its ends", name)
				}
			}
		}
	}
}

func TestNamedPoints(t *testing.T) {
	with := func(kind schedule.Kind, change func(*schedule.Config)) schedule.Config {
		c := schedule.Default(kind, 1, 100)
		if change != nil {
			change(&c)
		}
		return c
	}
	tests := map[string]struct {
		c    schedule.Config
		k    int
		want float64
	}{
		"one-cycle start":          {with(schedule.OneCycleCos, nil), 0, 0.01},
		"one-cycle peak":           {with(schedule.OneCycleCos, nil), 9, 1},
		"one-cycle end":            {with(schedule.OneCycleCos, nil), 99, 0.1},
		"one-cycle, one step up":   {with(schedule.OneCycleCos, func(c *schedule.Config) { c.Warmup = 1 }), 0, 1},
		"one-cycle, only warm-up":  {with(schedule.OneCycleCos, func(c *schedule.Config) { c.Warmup = 100 }), 100, 1},
		"cosine first":             {with(schedule.LinearWarmupCosine, nil), 0, 0.1},
		"cosine peak":              {with(schedule.LinearWarmupCosine, nil), 9, 1},
		"cosine end":               {with(schedule.LinearWarmupCosine, nil), 99, 0.1},
		"cosine, only warm-up":     {with(schedule.LinearWarmupCosine, func(c *schedule.Config) { c.Warmup = 100 }), 99, 1},
		"wsd start":                {with(schedule.WSD, nil), 0, 0.01},
		"wsd after warm-up":        {with(schedule.WSD, nil), 10, 1},
		"wsd last stable step":     {with(schedule.WSD, nil), 90, 1},
		"wsd last step":            {with(schedule.WSD, nil), 99, 0.1},
		"wsd end":                  {with(schedule.WSD, nil), 100, 0},
		"wsd without decay":        {with(schedule.WSD, func(c *schedule.Config) { c.DecayFrac = 0 }), 100, 1},
		"wsd decay to a half":      {with(schedule.WSD, func(c *schedule.Config) { c.FinalFrac = 0.5 }), 95, 0.75},
		"constant at the start":    {with(schedule.Constant, nil), 0, 1},
		"constant at the very end": {with(schedule.Constant, nil), 100, 1},
	}
	for name, test := range tests {
		if got := build(t, test.c).Rate(test.k); math.Abs(got-test.want) > 1e-15 {
			t.Errorf("%s: rate(%d) = %v, want %v", name, test.k, got, test.want)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	tests := map[string]struct {
		kind    schedule.Kind
		change  func(*schedule.Config)
		setting string
		say     string
	}{
		"unknown kind":        {"cosine", nil, "kind", `"onecycle_cos"`},
		"no rate":             {schedule.Constant, func(c *schedule.Config) { c.Peak = 0 }, "peak", "above 0"},
		"NaN rate":            {schedule.OneCycleCos, func(c *schedule.Config) { c.Peak = math.NaN() }, "peak", "NaN"},
		"infinite rate":       {schedule.WSD, func(c *schedule.Config) { c.Peak = math.Inf(1) }, "peak", "finite"},
		"no steps":            {schedule.Constant, func(c *schedule.Config) { c.Total = 0 }, "total", "at least 1"},
		"negative warm-up":    {schedule.WSD, func(c *schedule.Config) { c.Warmup = -1 }, "warmup", "0 to 100"},
		"long warm-up":        {schedule.OneCycleCos, func(c *schedule.Config) { c.Warmup = 101 }, "warmup", "0 to 100"},
		"div below 1":         {schedule.OneCycleCos, func(c *schedule.Config) { c.Div = 0 }, "div", "at least 1"},
		"NaN div":             {schedule.WSD, func(c *schedule.Config) { c.Div = math.NaN() }, "div", "NaN"},
		"no final div":        {schedule.OneCycleCos, func(c *schedule.Config) { c.FinalDiv = 0 }, "final_div", "above 0"},
		"tiny final div":      {schedule.OneCycleCos, func(c *schedule.Config) { c.FinalDiv = 5e-324 }, "final_div", "infinite"},
		"final above 1":       {schedule.LinearWarmupCosine, func(c *schedule.Config) { c.FinalFrac = 1.5 }, "final_frac", "0 to 1"},
		"NaN final":           {schedule.WSD, func(c *schedule.Config) { c.FinalFrac = math.NaN() }, "final_frac", "0 to 1"},
		"decay above 1":       {schedule.WSD, func(c *schedule.Config) { c.DecayFrac = 2 }, "decay_frac", "0 to 1"},
		"phases that collide": {schedule.WSD, func(c *schedule.Config) { c.DecayFrac = 0.95 }, "decay_frac", "exceed the run's 100"},
		"unknown shape":       {schedule.WSD, func(c *schedule.Config) { c.Shape = "cube" }, "shape", `"sqrt"`},
	}
	for name, test := range tests {
		c := schedule.Default(test.kind, 1, 100)
		if test.change != nil {
			test.change(&c)
		}
		_, err := schedule.New(c)
		var setting *schedule.SettingError
		if !errors.As(err, &setting) || setting.Setting != test.setting || !strings.Contains(setting.Error(), test.say) {
			t.Errorf("%s: error %v, want one on %q that says %q", name, err, test.setting, test.say)
		}
	}
	if _, err := schedule.New(schedule.Config{Kind: schedule.WSD}); strings.Count(err.Error(), "\n") < 2 {
		t.Errorf("not every wrong setting is reported: %v", err)
	}
}

func ExampleNew() {
	s, err := schedule.New(schedule.Default(schedule.OneCycleCos, 1e-3, 100))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, k := range []int{0, 9, 50, 99} {
		fmt.Printf("step %2d: %.2e\n", k, s.Rate(k))
	}
	// Output:
	// step  0: 1.00e-05
	// step  9: 1.00e-03
	// step 50: 6.13e-04
	// step 99: 1.00e-04
}

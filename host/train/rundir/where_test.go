package rundir

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestConditions(t *testing.T) {
	some(t)
	all := list(t, "runs")
	for text, want := range map[string]string{
		"quantizer.bits=4":           "d c",
		"quantizer.bits = 4.0":       "d c",
		"quantizer.weights.bits>=3":  "b d c e",
		"val_loss<3":                 "b c",
		"val_loss<=3":                "a b c",
		"val_loss != 3":              "b c e",
		"seed>2":                     "c",
		"state==interrupted":         "d",
		"state=done":                 "a b c e",
		"state!=done":                "broken d",
		"run~deep":                   "c",
		`method.form="off"`:          "c",
		"method.form=off":            "c",
		"quantizer.weights.plugin>b": "a b c",
		"train_loss>4":               "d",
		"schedule.rate=3e-3":         "a b d c e",
	} {
		c, err := ParseCondition(text)
		if err != nil {
			t.Error(err)
			continue
		}
		if got := dirs(Filter(all, []Condition{c})); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	a, _ := ParseCondition("val_loss<3")
	b, _ := ParseCondition("seed=2")
	if got := dirs(Filter(all, []Condition{a, b})); got != "b" {
		t.Errorf("both: %s", got)
	}
	for _, text := range []string{"", "seed", "=3", "<3", "!"} {
		if c, err := ParseCondition(text); err == nil {
			t.Errorf("%q is %+v", text, c)
		}
	}
}

func TestTerms(t *testing.T) {
	for text, want := range map[string][]string{
		"":                                       nil,
		" demo  val_loss<3 quest ":               {"demo", "val_loss<3", "quest"},
		"val_loss < 3 demo":                      {"val_loss<3", "demo"},
		"val_loss <= 3 steps >=5 run~ demo x =y": {"val_loss<=3", "steps>=5", "run~demo", "x=y"},
		"= demo":                                 {"=demo"},
		"demo !":                                 {"demo", "!"},
		"state != done":                          {"state!=done"},
		"val_loss <":                             {"val_loss<"},
	} {
		if diff := cmp.Diff(want, Terms(text)); diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
	}
}

func TestSort(t *testing.T) {
	some(t)
	for by, want := range map[string]string{
		"run":       "a b broken d c e",
		"val_loss":  "c b a e broken d",
		"-val_loss": "a b c e broken d",
		"seed":      "d e a b c broken", // as numbers
		"-seed":     "c b a d e broken",
	} {
		l := list(t, "runs")
		Sort(l, by)
		if got := dirs(l); got != want {
			t.Errorf("by %s: %s, want %s", by, got, want)
		}
	}
}

// TestSortNotANumber: a run whose number is NaN comes after those that have one, from
// whichever side they are sorted and wherever it stood before.
func TestSortNotANumber(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, loss := range map[string]float64{"a": math.NaN(), "b": 3, "c": math.NaN(), "d": 2} {
		fake(t, "runs/"+name, loss, 0)
	}
	for by, want := range map[string]string{"val_loss": "d b a c", "-val_loss": "b d a c"} {
		l := list(t, "runs")
		Sort(l, by)
		if got := dirs(l); got != want {
			t.Errorf("by %s: %s, want %s", by, got, want)
		}
	}
}

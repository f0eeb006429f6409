package schedule_test

import (
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/method/schedule"
)

// TestIdle: keys that a kind of schedule does not read are named, unless they are as by default.
func TestIdle(t *testing.T) {
	all := schedule.Settings{Rate: 1, Warmup: 15, From: 0.5, Floor: 0.3, Decay: 0.7}
	for kind, want := range map[schedule.Kind][]string{
		schedule.Constant:           {"schedule.warmup", "schedule.warmup_from", "schedule.floor", "schedule.decay"},
		schedule.LinearWarmupCosine: {"schedule.warmup_from", "schedule.decay"},
		schedule.OneCycleCos:        {"schedule.decay"},
		schedule.WSD:                nil,
	} {
		all.Kind = kind
		if got := all.Idle(); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", kind, got, want)
		}
		usual := schedule.Settings{Kind: kind, Rate: 1, Warmup: 0, From: 0.01, Floor: 0.1, Decay: 0.1}
		if got := usual.Idle(); len(got) > 0 {
			t.Errorf("%s with defaults: %q", kind, got)
		}
	}
}

// TestIdleChangesNothing: what is named has no influence on the rates, and what is not has.
func TestIdleChangesNothing(t *testing.T) {
	const steps = 40
	for _, kind := range schedule.Kinds() {
		base := schedule.Settings{Kind: kind, Rate: 1, Warmup: 0.1, From: 0.01, Floor: 0.1, Decay: 0.1}
		for key, change := range map[string]func(*schedule.Settings){
			"schedule.warmup":      func(s *schedule.Settings) { s.Warmup = 0.3 },
			"schedule.warmup_from": func(s *schedule.Settings) { s.From = 0.5 },
			"schedule.floor":       func(s *schedule.Settings) { s.Floor = 0.4 },
			"schedule.decay":       func(s *schedule.Settings) { s.Decay = 0.6 },
		} {
			other := base
			change(&other)
			a, err := base.Schedule(steps)
			if err != nil {
				t.Fatal(err)
			}
			b, err := other.Schedule(steps)
			if err != nil {
				t.Fatal(err)
			}
			differ := false
			for k := range steps {
				differ = differ || a.Rate(k) != b.Rate(k)
			}
			if idle := slices.Contains(other.Idle(), key); idle == differ {
				t.Errorf("%s: %s is named as without effect: %t, and changes rates: %t", kind, key, idle, differ)
			}
		}
	}
}

package train_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/internal/plaintoml"
	"github.com/cage-qat/cage/internal/testing/testlevel"
)

// warnings runs a training and returns its warnings.
func warnings(t *testing.T, cfg *config.Config) string {
	t.Helper()
	var log strings.Builder
	testrun.Train(t, cfg,
		train.Options{Logger: hclog.New(&hclog.LoggerOptions{Output: &log, Level: hclog.Warn})})
	return log.String()
}

// TestWithoutEffect checks that a run warns of exactly those settings that have no effect.
func TestWithoutEffect(t *testing.T) {
	testlevel.Long(t, "trains several runs")
	quadratic := func(overrides ...string) *config.Config {
		return problem(t, quadraticText, append(overrides, "train.steps=2", "train.eval_every=0")...)
	}
	const none = `quantizer.weights.plugin="none"`
	refreshes := func(optimizer string) *config.Config {
		return testrun.Config(t, "optimizer="+optimizer, "train.steps=1")
	}
	micro := func(documents, accumulate string) *config.Config {
		return testrun.Config(t, `train.loss_mean="micro_batch"`, "data.documents="+documents,
			"train.accumulate="+accumulate, "train.steps=1", "model.context=64")
	}
	const mean = `train.loss_mean = "micro_batch" has no effect: `
	for _, c := range []struct {
		cfg  *config.Config
		want []string
	}{
		{quadratic(), nil},
		{quadratic("diagnostics={every=1, window=2}", "method.pareto_every=1"), nil},
		{quadratic(none), nil},
		{quadratic(none, `method.form="decoupled"`),
			[]string{`method.form = "decoupled" has no effect: no weight is quantized`}},
		{quadratic(none, "method.pareto_every=1", "diagnostics.every=1"),
			[]string{"method.pareto_every has no effect: no weight is quantized",
				"diagnostics.every has no effect: no weight is quantized"}},
		{quadratic(`method.form="coupled"`, `method.variant="official"`),
			[]string{`method.variant = "official" has no effect: method.form is "coupled"`}},
		{quadratic(`method.variant="official"`), nil},
		{quadratic(`quantizer.activations={plugin="quest"}`),
			[]string{"[quantizer.activations] has no effect: no activation"}},
		{quadratic(`optimizer.rest={plugin="sgd"}`),
			[]string{"[optimizer.rest] has no effect: [optimizer] accepts all tensors"}},
		{testrun.Config(t, "train.steps=1", `optimizer={plugin="muon", rest={plugin="sgd"}}`,
			`quantizer={activations={plugin="quest"}, weights={plugin="quest"}}`), nil},
		{refreshes(`{plugin="adamw", refresh_delay=1}`),
			[]string{"optimizer.refresh_delay has no effect: the optimizer has no refreshes"}},
		{refreshes(`{plugin="soap", freq=4, refresh_delay=1}`), nil},
		{refreshes(`{plugin="muon", rest={refresh_delay=2}}`),
			[]string{"optimizer.rest.refresh_delay has no effect"}},
		{refreshes(`{plugin="adamw", rest={plugin="adamw"}}`), nil},
		{micro(`"joined"`, "2"),
			[]string{mean + "all micro-batches have as many targets, as documents are joined"}},
		{micro(`"separate"`, "1"), []string{mean + "a step has one micro-batch"}},
		{micro(`"separate"`, "2"), nil},
		{quadratic("train.average_decay=0.5", "train.average_from=1"),
			[]string{`train.average_decay has no effect: train.average is "off"`,
				`train.average_from has no effect: train.average is "off"`}},
		{quadratic(`train.average="uniform"`, "train.average_decay=0.5"),
			[]string{`train.average_decay has no effect: train.average is "uniform"`}},
		{quadratic(`train.average="uniform"`, "train.average_from=1"), nil},
	} {
		got := warnings(t, c.cfg)
		if n := strings.Count(got, "has no effect"); n != len(c.want) {
			t.Errorf("%d settings without effect, want %q:\n%s", n, c.want, got)
		}
		for _, want := range c.want {
			if !strings.Contains(got, want) {
				t.Errorf("want %q in\n%s", want, got)
			}
		}
	}
}

// TestErrorOfZeros checks that weights that stay 0 have the relative error 0, not NaN.
func TestErrorOfZeros(t *testing.T) {
	cfg := problem(t, toyText, "model.start=[0.0]", "train.steps=3", "train.log_every=1",
		"method.pareto_every=0", "schedule.rate=1e-30", "diagnostics.tensors=true")
	testrun.Train(t, cfg, train.Options{})
	tensors := 0
	for _, rec := range records(t, cfg.Train.Out) {
		tensors += len(rec.Weights)
		for name, w := range rec.Weights {
			if w.ErrorRel == nil || rec.ErrorRel == nil || *w.ErrorRel != *rec.ErrorRel || rec.Step == 1 &&
				*rec.ErrorRel != 0 {
				t.Errorf("step %d: %s has the relative error %v, all have %v", rec.Step, name, w.ErrorRel,
					rec.ErrorRel)
			}
		}
	}
	if tensors < 2 {
		t.Errorf("%d tensors are recorded", tensors)
	}
}

// lateRefreshes are optimizers whose refreshes take effect late.
var lateRefreshes = map[string][]string{
	"soap": {`optimizer={plugin="soap", freq=4, refresh_delay=3}`},
	"shampoo": {`optimizer={plugin="shampoo", freq=5, start=1, refresh_delay=4, rest="soap"}`,
		"optimizer.rest.refresh_delay=9"},
}

// TestResumeBesideRefreshes checks that a run that is stopped repeatedly, before, during and after
// refreshes, ends like one that never stopped.
func TestResumeBesideRefreshes(t *testing.T) {
	testlevel.Long(t, "stops runs at many steps")
	for name, overrides := range lateRefreshes {
		t.Run(name, func(t *testing.T) {
			whole := testrun.Config(t, overrides...)
			parts := testrun.Elsewhere(t, whole)
			testrun.Train(t, whole, train.Options{})
			pending := 0
			stops := []int{3, 6, 8, 9, 13, 14, 17}
			for _, stop := range stops {
				runParts(t, parts, stop)
				if _, some := testrun.Checkpoint(t, parts.Train.Out, stop).Meta["refreshes"]; some {
					pending++
				}
			}
			if pending < 3 || pending == len(stops) {
				t.Errorf("%d of %d checkpoints are taken while a refresh is computed", pending, len(stops))
			}
			testrun.Train(t, testrun.Again(t, parts), train.Options{Resume: true})
			testrun.SameRun(t, "one run and its parts", whole.Train.Out, parts.Train.Out)
		})
	}
}

// TestNoDelay checks that checkpoints without a delay contain nothing about refreshes, like those
// of versions without delays.
func TestNoDelay(t *testing.T) {
	cfg := testrun.Config(t, `optimizer={plugin="soap", freq=4}`)
	runParts(t, cfg, 7)
	saved := testrun.Checkpoint(t, cfg.Train.Out, 7)
	if text, some := saved.Meta["refreshes"]; some {
		t.Errorf("the metadata has refreshes: %s", text)
	}
	for _, tensor := range saved.Tensors {
		if strings.HasPrefix(tensor.Name, "refresh/") {
			t.Errorf("there is a tensor %s", tensor.Name)
		}
	}
	changed := testrun.Again(t, cfg, "optimizer.refresh_delay=1")
	refused(t, "resumed with another delay", changed, train.Options{Resume: true},
		"optimizer.refresh_delay was 0, is 1")
}

// TestDelayTooLong checks that the error names the key in the file, the tensor and the interval.
func TestDelayTooLong(t *testing.T) {
	cfg := testrun.Config(t, `optimizer={plugin="soap", freq=4, refresh_delay=4}`)
	_, err := train.Run(t.Context(), cfg, train.Options{Finder: testrun.Finder(t)})
	var ce *plaintoml.Error
	if !errors.As(err, &ce) || ce.Key != "optimizer.refresh_delay" || ce.Hint != "want 0 to 3" ||
		!strings.Contains(ce.Msg,
			"soap for embedding: a delay of 4 updates, but refreshes are due every 4") {
		t.Errorf("got %v", err)
	}
}

// TestCancelBesideRefreshes checks that an interruption while refreshes are computed ends the run
// and leaves no goroutine behind.
func TestCancelBesideRefreshes(t *testing.T) {
	testlevel.Long(t, "trains several times")
	testrun.Finder(t) // builds the plugins
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	for _, overrides := range lateRefreshes {
		ctx, cancel := context.WithCancel(t.Context())
		cfg := testrun.Config(t, append(overrides, "train.steps=100000", "train.eval_every=0")...)
		_, err := train.Run(ctx, cfg,
			train.Options{Finder: testrun.Finder(t), Console: cancelAfter(3, cancel)})
		if !errors.Is(err, train.ErrInterrupted) {
			t.Errorf("%v", err)
		}
		cancel()
	}
}

// cancelAfter returns a display that calls cancel at the n-th write.
func cancelAfter(n int, cancel func()) writer {
	return func(p []byte) (int, error) {
		if n--; n == 0 {
			cancel()
		}
		return len(p), nil
	}
}

type writer func(p []byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// TestLateRefreshesTrain checks that delayed preconditioners train about as well: SOAP's loss is 6
// % lower, Shampoo's 4 % higher. If SOAP's bases did not match its momentum, its loss would be 28 %
// higher.
func TestLateRefreshesTrain(t *testing.T) {
	testlevel.Long(t, "trains with late and timely refreshes")
	for _, name := range []string{"soap", "shampoo"} {
		final := func(delay int) float64 {
			cfg := testrun.Config(t, fmt.Sprintf(`optimizer={plugin=%q, freq=10, refresh_delay=%d}`, name,
				delay),
				"train.steps=150", "train.eval_every=0", "schedule.rate=3e-3")
			s := testrun.Train(t, cfg, train.Options{})
			return float64(*s.ValLoss)
		}
		now, late := final(0), final(5)
		t.Logf("%s: %.4f, with a delay of 5: %.4f", name, now, late)
		if !(math.Abs(late-now) < 0.1*now) || late == now {
			t.Errorf("%s: the loss is %v, with a delay %v", name, now, late)
		}
	}
}

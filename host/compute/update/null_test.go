package update_test

import (
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/update"
	"github.com/cage-qat/cage/sdk/program"
)

var onlyNull = update.Options{Executors: []update.Executor{update.Null{}}}

// nullJob adds the gradient to x, makes y, and measures.
func nullJob(t testing.TB) update.Job {
	return job(t, "x", []string{"x", "g"}, []string{"x", "g"}, func(b *program.Builder, in map[string]program.Value) {
		sum := in["x"].Add(in["g"].Mul(in["rate"]))
		b.Output("x", sum)
		b.Output("y", sum.Neg())
		b.Output("measure", sum.Sum(0))
	})
}

// TestNull: what a job replaces stays, what it makes is zero, what it spends is gone.
func TestNull(t *testing.T) {
	dev := open(t)
	u, err := update.Compile(dev, "null", []update.Job{nullJob(t)}, onlyNull)
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	tensors := upload(t, dev, map[string]float32{"x": 1, "g": 2, "y": 3})
	delete(tensors, "y")
	measures, err := u.Run(tensors, update.Scalars{"rate": 1})
	if err != nil {
		t.Fatal(err)
	}
	defer tensors["y"].Finalize()
	if x, y := value(t, tensors["x"]), value(t, tensors["y"]); x != 1 || y != 0 {
		t.Errorf("x = %v, y = %v; want 1 and 0", x, y)
	}
	if m, ok := measures["measure"]["x"]; !ok || m != 0 {
		t.Errorf("measures %v; want a zero", measures)
	}
	if tensors["g"] != nil {
		t.Error("the gradient is donated and still there")
	}
	if u.Executed["null"] != 1 {
		t.Errorf("executed %v; want one job", u.Executed)
	}
}

// TestNullRefuses: it checks what it is given as executors that compute do.
func TestNullRefuses(t *testing.T) {
	dev := open(t)
	for want, change := range map[string]func(j *update.Job, t update.Tensors, s update.Scalars){
		"no input w":                func(j *update.Job, _ update.Tensors, _ update.Scalars) { j.Inputs["w"] = "w" },
		"no output w":               func(j *update.Job, _ update.Tensors, _ update.Scalars) { j.Outputs["w"] = "w" },
		"bound to no tensor":        func(j *update.Job, _ update.Tensors, _ update.Scalars) { delete(j.Inputs, "g") },
		"the tensor g is missing":   func(_ *update.Job, t update.Tensors, _ update.Scalars) { delete(t, "g") },
		"the scalar rate is missin": func(_ *update.Job, _ update.Tensors, s update.Scalars) { delete(s, "rate") },
		"g has shape [1 3]": func(_ *update.Job, t update.Tensors, _ update.Scalars) {
			t["g"], _ = engine.Upload(dev, []float32{2, 2, 2}, 1, 3)
		},
	} {
		t.Run(want, func(t *testing.T) {
			j, scalars := nullJob(t), update.Scalars{"rate": 1}
			tensors := upload(t, dev, map[string]float32{"x": 1, "g": 2})
			change(&j, tensors, scalars)
			u, err := update.Compile(dev, "null", []update.Job{j}, onlyNull)
			if err == nil {
				defer u.Close()
				_, err = u.Run(tensors, scalars)
			}
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v; want an error with %q", err, want)
			}
		})
	}
}

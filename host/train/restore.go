package train

import (
	"fmt"

	"github.com/cage-qat/cage/host/checkpoint"
	"github.com/cage-qat/cage/host/engine"
	"github.com/cage-qat/cage/host/safetensors"
	"github.com/cage-qat/cage/host/step"
)

// restore goes on from a checkpoint of this run.
func (r *run) restore(state checkpoint.State) error {
	made := &provenance{Run: r.identity}
	err := made.checkOwner(r.dir, state.Step, state.Meta)
	if err != nil {
		return err
	}
	if r.identity == "" {
		if r.identity, err = identityOf(state.Meta); err != nil {
			return err
		}
	}
	if err := state.Meta.Get("progress", &r.done); err != nil {
		return err
	}
	var build engine.BuildInfo
	if err := state.Meta.Get("build", &build); err != nil {
		return err
	}
	if now := r.device.BuildInfo(); build != now {
		r.log.Warn("the checkpoint was written by another build: the bits of this run may differ from an uninterrupted one",
			"checkpoint", build.String(), "now", now.String())
	}
	tensors := map[string]safetensors.Tensor{}
	for _, t := range state.Tensors {
		tensors[t.Name] = t
	}
	r.state, err = r.kernels.Upload(loader(tensors))
	if err != nil {
		return fmt.Errorf("checkpoint of step %d: %w", state.Step, err)
	}
	if err := r.restoreRefreshes(state, tensors); err != nil {
		return fmt.Errorf("checkpoint of step %d: %w", state.Step, err)
	}
	if err := r.restoreMovement(state, tensors); err != nil {
		return fmt.Errorf("checkpoint of step %d: %w", state.Step, err)
	}
	r.saving.step = state.Step
	return nil
}

// refreshesKey is the entry of a checkpoint's metadata about refreshes whose results
// are not in place yet. There is none where there are no such refreshes.
const refreshesKey = "refreshes"

func (r *run) saveRefreshes(state *checkpoint.State) error {
	pending := r.kernels.PendingRefreshes(r.state)
	if len(pending) == 0 {
		return nil
	}
	return state.Meta.Set(refreshesKey, pending)
}

func (r *run) restoreRefreshes(state checkpoint.State, tensors map[string]safetensors.Tensor) error {
	if _, some := state.Meta[refreshesKey]; !some {
		return nil
	}
	var pending []step.PendingRefresh
	if err := state.Meta.Get(refreshesKey, &pending); err != nil {
		return err
	}
	return r.kernels.RestoreRefreshes(r.state, pending, loader(tensors))
}

// loader finds the tensors of a checkpoint by name.
func loader(tensors map[string]safetensors.Tensor) func(string) (step.Tensor, error) {
	return func(name string) (step.Tensor, error) {
		t, ok := tensors[name]
		if !ok {
			return step.Tensor{}, fmt.Errorf("there is no tensor %s", name)
		}
		values, err := safetensors.Values[float32](t)
		return step.Tensor{Name: name, Dims: t.Shape, Data: values}, err
	}
}

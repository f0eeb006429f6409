package memory

import (
	"fmt"
	"math"
	"runtime/debug"
	"sort"
	"strings"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/model/architecture"
)

// Accuracy is the share by which the estimate may be off on the CPU. A run that would fit if the
// estimate is too high by that share is not refused.
const Accuracy = 0.25

// accuracy is the same for the device of a model.
func (m Model) accuracy() float64 {
	if m.GPU != nil {
		return AccuracyOnGPU
	}
	return Accuracy
}

// addressable is more than a process can have on the machines of today (48 bits of address, half of them its own).
const addressable = 1 << 47

// Check returns an [*Error] if a run needs more memory than is available or, if available
// is nil, more than any machine has.
func Check(m Model, available *Available) error { return NewReport(m, available).Err() }

// CheckHost returns an error if what a GPU keeps in its machine's memory is more than is available there; nil: that is not known.
func CheckHost(m Model, machine *Available) error {
	if host := Estimate(m).Host; machine != nil && host > float64(machine.Bytes) {
		return fmt.Errorf("device.offload = %q keeps %s of states for each GPU in the machine's memory, and %s: want device.offload = %q, or a machine with more memory",
			device.OffloadStates, Bytes(host), machine, device.OffloadNone)
	}
	return nil
}

// CheckPart is [Check] with only a part of what a run needs, such as the model without its optimizer. The error says so; it
// cannot tell what would fit.
func CheckPart(m Model, available *Available) error {
	r := NewReport(m, available)
	if r.Fits {
		return nil
	}
	r.Changes = nil
	return &Error{r, true}
}

// String says how much memory is available, and what limits it.
func (a Available) String() string {
	return fmt.Sprintf("%s are there (%s)", Bytes(float64(a.Bytes)), a.Limit)
}

// Error says why there is not enough memory, and with which changed settings there would be.
type Error struct {
	*Report
	part bool // what is needed is only a part
}

func (e *Error) Error() string {
	var b strings.Builder
	limit, needs, without := "more than any machine has", e.Says(), ""
	if e.Available != nil {
		limit = e.Available.String()
	}
	if e.part {
		needs, without = "at least "+strings.TrimPrefix(needs, "about "), "\n  and what quantizers and optimizers need"
	}
	fmt.Fprintf(&b, "this needs %s, %s", needs, limit)
	for _, p := range e.Parts {
		if p.Bytes >= 0.01*e.Bytes {
			fmt.Fprintf(&b, "\n  %s", p)
		}
	}
	fmt.Fprintf(&b, "%s\n%s", without, WouldFit(e.Changes))
	return b.String()
}

// WouldFit is a sentence that lists changed settings.
func WouldFit(changes []string) string {
	if len(changes) == 0 {
		return "what would fit is a smaller model"
	}
	return "what would fit: " + strings.Join(changes, "; or ")
}

// changes lists changed settings with each of which a run would fit into memory, if it needs as many times of the estimate as
// scale says. They are single ones if there are such.
func changes(m Model, available Available, scale float64) []string {
	need := func(m Model) float64 { return scale * Estimate(m).Total() }
	fits := func(m Model) bool { return need(m) <= float64(available.Bytes) }
	var list []string
	for _, divided := range divisions(m) {
		if fits(divided.Model) {
			list = append(list, fmt.Sprintf("device.shard = %q (%s)", divided.shard, Bytes(need(divided.Model))))
			break // what divides less takes less time
		}
	}
	recompute := m
	recompute.Recompute = architecture.RecomputeBlocks
	able := m.Recompute != architecture.RecomputeBlocks && !m.Forward && m.Layers > 0
	for _, more := range []architecture.Recompute{architecture.RecomputeAttention, architecture.RecomputeBlocks} {
		again := m
		again.Recompute = more
		if able && more != m.Recompute && fits(again) {
			list = append(list, fmt.Sprintf(`train.recompute = %q (%s)`, more, Bytes(need(again))))
			break // what computes less again takes less time
		}
	}
	offload := m
	offload.Offload = true
	if m.GPU != nil && !m.Forward && !m.Offload && fits(offload) {
		list = append(list, fmt.Sprintf("device.offload = %q (%s, and %s of the machine's memory)", device.OffloadStates, Bytes(need(offload)), Bytes(Estimate(offload).Host)))
	}
	list = append(list, fewer(m, fits)...)
	if context := largest(m.Context, func(n int) bool { m := m; m.Context = n; return fits(m) }); context > 0 {
		text := "model.context = %d"
		if m.Forward {
			text = "sequences of %d tokens (--context of a Hugging Face checkpoint)"
		}
		list = append(list, fmt.Sprintf(text, context))
	}
	if still := m; m.Samples > 0 {
		if still.Samples = 0; fits(still) {
			list = append(list, "smaller diagnostics.coordinates or diagnostics.window")
		}
	}
	if share := available.share(need(m)); share > 0 {
		list = append(list, fmt.Sprintf("device.memory_fraction = %.2f, if nothing else uses the GPU", share))
	}
	if len(list) > 0 || !able {
		return list
	}
	for _, with := range fewer(recompute, fits) {
		list = append(list, `train.recompute = "blocks" and `+with)
	}
	return list
}

// division is a model whose GPUs divide more than they do.
type division struct {
	Model
	shard device.Shard
}

// divisions lists what several GPUs can divide more, from little to much.
func divisions(m Model) (list []division) {
	if m.Forward || m.Replicas < 2 {
		return nil
	}
	if m.StateShards < 2 {
		m.StateShards = m.Replicas
		list = append(list, division{m, device.ShardStates})
	}
	if m.ParameterShards < 2 {
		m.ParameterShards = m.Replicas
		list = append(list, division{m, device.ShardFull})
	}
	return list
}

// fewer is the change to the largest number of sequences at once that fits. In training, it is one with which a step can
// have as many sequences as before.
func fewer(m Model, fits func(Model) bool) []string {
	most := largest(m.Batch, func(n int) bool { m := m; m.Batch = n; return fits(m) })
	if most == 0 {
		return nil
	}
	if m.Forward {
		return []string{fmt.Sprintf("%d sequences at once", most)}
	}
	replicas, step := max(1, m.Replicas), m.Batch*max(1, m.Accumulate)
	batch := most
	for step%batch != 0 {
		batch--
	}
	text := fmt.Sprintf("train.batch = %d with train.accumulate = %d", replicas*batch, step/batch)
	if batch != most {
		text += fmt.Sprintf(" (%d is the largest that fits)", replicas*most)
	}
	return []string{text}
}

// ownShare is the largest share of a GPU's memory to let XLA take: the driver, its libraries and kernels take some that XLA does not count.
const ownShare = 0.95

// share is the device.memory_fraction with which a need is met, 0 if there is none.
func (a Available) share(need float64) float64 {
	if a.Fraction == 0 {
		return 0
	}
	const percent = 100
	share := math.Ceil(percent*need/float64(a.Bytes)*a.Fraction) / percent
	if share > ownShare {
		return 0
	}
	return share
}

// largest is the largest number below n that fits, 0 for none.
func largest(n int, fits func(int) bool) int {
	return max(0, sort.Search(max(0, n-1), func(i int) bool { return !fits(i + 1) }))
}

// Bytes formats a number of bytes for people.
func Bytes(n float64) string {
	const units = "kMGTPEZY"
	if n < 999.5 {
		return fmt.Sprintf("%.0f B", n)
	}
	at := 1
	for n /= 1000; n >= 999.5 && at < len(units); n /= 1000 { // 999.5 would be shown as 1e+03
		at++
	}
	return fmt.Sprintf("%.3g %cB", n, units[at-1])
}

// share of the available memory that garbage may fill.
const share = 0.9

// Limit makes the garbage collector work harder when the memory of this process comes
// close to what is available; otherwise, garbage takes about as much memory as what is in
// use. A limit that the user has set (GOMEMLIMIT) is kept.
func Limit(a Available) {
	if debug.SetMemoryLimit(-1) == math.MaxInt64 {
		debug.SetMemoryLimit(int64(share * float64(a.Bytes)))
	}
}

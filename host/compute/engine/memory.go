package engine

import "fmt"

// Memory is the memory that an executable needs on each device, in bytes, as the compiler reports
// it.
type Memory struct {
	Code      int64 `json:"code"`
	Inputs    int64 `json:"inputs"`
	Outputs   int64 `json:"outputs"`
	Aliased   int64 `json:"aliased"`   // outputs that reuse the memory of donated inputs
	Temporary int64 `json:"temporary"` // intermediate values
}

// Total returns the memory that an executable needs while it runs, with its inputs and outputs.
func (m Memory) Total() int64 { return m.Code + m.Inputs + m.Outputs - m.Aliased + m.Temporary }

// String lists the parts.
func (m Memory) String() string {
	return fmt.Sprintf("inputs %d, outputs %d in addition, temporary %d, code %d",
		m.Inputs, m.Outputs-m.Aliased, m.Temporary, m.Code)
}

// Memory returns the memory that the executable needs; false if the compiler does not report it, as
// on the CPU.
func (e *Executable) Memory() (Memory, bool) {
	if e.device.SharesMemory() || !e.graph.IsCompiled() {
		return Memory{}, false
	}
	m := compiledMemory(e.graph.Executable())
	return m, m.Total() > 0
}

// MemoryLimit returns how much of each GPU's memory XLA may use, in bytes, according to
// [Options.MemoryFraction]; false if it is unknown, as on the CPU or with XLA's allocator
// "platform".
func (d *Device) MemoryLimit() (int64, bool) {
	if d.SharesMemory() || d.checkOpen() != nil {
		return 0, false
	}
	return memoryLimit(d.backend)
}

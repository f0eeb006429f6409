package engine

import "fmt"

// Memory is what the compiler of a device says that an executable needs of each device's memory, in bytes.
type Memory struct {
	Code      int64 `json:"code"`
	Inputs    int64 `json:"inputs"`
	Outputs   int64 `json:"outputs"`
	Aliased   int64 `json:"aliased"`   // outputs that take the place of donated inputs
	Temporary int64 `json:"temporary"` // values in between
}

// Total returns what an executable needs while it runs, all that it reads and returns included.
func (m Memory) Total() int64 { return m.Code + m.Inputs + m.Outputs - m.Aliased + m.Temporary }

// String lists the parts.
func (m Memory) String() string {
	return fmt.Sprintf("inputs %d, outputs %d in addition, temporary %d, code %d", m.Inputs, m.Outputs-m.Aliased, m.Temporary, m.Code)
}

// Memory returns what the executable needs. It returns false where the device's compiler does not tell, as on the CPU.
func (e *Executable) Memory() (Memory, bool) {
	if !e.graph.IsCompiled() {
		return Memory{}, false
	}
	m := compiledMemory(e.graph.Executable())
	return m, m.Total() > 0
}

// MemoryLimit returns how much memory XLA may take of each GPU, in bytes: the share that [Options.MemoryFraction] says. It returns
// false where the device does not tell, as the CPU or XLA's allocator "platform".
func (d *Device) MemoryLimit() (int64, bool) {
	if d.checkOpen() != nil {
		return 0, false
	}
	return memoryLimit(d.backend)
}

package engine

import (
	"sync"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/matmul"
)

// ProductTier returns the kernels for products on this processor. If it returns an error, the CPU
// device cannot be opened.
var ProductTier = sync.OnceValues(matmul.Best)

// WarnOfProducts warns if bfloat16 products are no faster than float32 products.
func (d *Device) WarnOfProducts() {
	if d.kind != device.CPU || d.options.Precision != device.BFloat16 {
		return
	}
	if tier, err := ProductTier(); err == nil && !tier.HasBFloat16() {
		d.Warn("this processor cannot multiply bfloat16: products round their operands and take as "+
			"long as in float32", "kernels", tier.Name())
	}
}

// MultipliesBFloat16 reports whether this processor has a dot-product instruction for bfloat16.
func MultipliesBFloat16() bool {
	tier, err := ProductTier()
	return err == nil && tier.HasBFloat16()
}

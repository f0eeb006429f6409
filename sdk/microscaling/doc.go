// Package microscaling provides operations for quantizers to four-bit floats with a scale per
// block, MXFP4 (OCP Microscaling specification) and NVFP4: blocks along the rows of a tensor,
// rounding to E2M1 and E4M3, and the codes of E2M1. The quantizer chooses the scales. [ScaleType],
// which rounds scales to 16-bit floats, is for every quantizer.
package microscaling

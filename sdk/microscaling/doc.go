// Package microscaling helps to write quantizers whose numbers are floats of four
// bits in blocks that share a scale: the formats of the OCP Microscaling
// specification (MXFP4) and NVFP4. It writes operations into the program of a
// plugin: blocks along the rows of a tensor, rounding to E2M1 and to E4M3, and the
// codes of E2M1.
//
// How a scale is chosen is the business of a quantizer and has no place here, nor
// has anything that computes on tensors.
package microscaling

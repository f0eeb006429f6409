// Package posttrain quantizes trained weights, one matrix at a time: by rounding to the nearest level of a grid (RTN),
// or by GPTQ (Frantar et al., "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained Transformers",
// 2023), in which the columns that are not yet rounded are adjusted to make up for the error of those that are.
//
// A grid is found in what a quantizer's program returns for a weight: a scale for each group of elements, and the
// numbers that codes stand for. Nothing here knows which quantizer it was. Models, devices and files are handled
// elsewhere; the subpackage layerwise provides the inputs of the layers.
package posttrain

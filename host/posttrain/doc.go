// Package posttrain quantizes trained weights, one matrix at a time: by rounding to the nearest level of a grid (RTN), and
// by GPTQ (Frantar et al., "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained Transformers", 2023),
// which lets the columns that are still to be rounded make up for the error of those that were.
//
// A grid is what a quantizer's program says of a weight: a scale for each group of elements and the numbers that codes
// stand for. Nothing here knows which quantizer it was. Models, devices and files are the business of others; package
// layerwise below this one brings the inputs of the layers.
package posttrain

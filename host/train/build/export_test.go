package build

var Decide = decide

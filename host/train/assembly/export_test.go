package assembly

var Decide = decide

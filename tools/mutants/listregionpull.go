package main

// regionPullMutants break how regions read each other's logs.
var regionPullMutants = []mutant{}

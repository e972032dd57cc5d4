package agent

// MetadataService says whether a machine has an instance metadata service, by the rule by which its user data
// is looked for: its hardware is EC2's, or the kernel command line names the service. endpoint is empty for the
// usual one. root is the root directory, "" being "/".
func MetadataService(root string) (endpoint string, has bool) {
	a := newAgent(Options{Root: root})
	return a.kernel[OptionIMDS], a.machine.ec2 || a.named(sourceIMDS)
}

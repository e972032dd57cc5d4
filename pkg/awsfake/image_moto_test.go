package awsfake

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ebs"
	ebstypes "github.com/aws/aws-sdk-go-v2/service/ebs/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	ssmtypes "github.com/aws/aws-sdk-go-v2/service/ssm/types"
	"github.com/aws/smithy-go"
	"github.com/google/go-cmp/cmp"
)

// TestImagesAgainstMoto compares both stand-ins as far as moto is right. It leaves out what moto 5.2.1 does not model:
// checksums and counts, parents, lists and tokens of blocks, timeouts, sizes; parameters of RegisterImage other than
// name and description, tags included; duplicate names; snapshots in use by images; the state of snapshots that are
// being written.
func TestImagesAgainstMoto(t *testing.T) {
	b := motoBench(t)
	theirs := (&shop{bench: b, url: *b.ec2.Options().BaseEndpoint}).in(HomeRegion, anyone())
	ours := newShop(t, Options{})
	for name, script := range map[string]func(*shop, *testing.T) []string{"snapshots": (*shop).sayBlocks, "images": (*shop).sayImages, "history": (*shop).sayHistory} {
		if diff := cmp.Diff(script(theirs, t), script(ours, t)); diff != "" {
			t.Errorf("%s: moto (-) and awsfake (+) differ:\n%s", name, diff)
		}
	}
}

// told returns an error's code and message without the values that differ between accounts.
func told(err error, names ...string) string {
	var api smithy.APIError
	if !errors.As(err, &api) {
		return fmt.Sprint(err)
	}
	return strings.NewReplacer(names...).Replace(api.ErrorCode() + ": " + api.ErrorMessage())
}

func (s *shop) sayBlocks(t *testing.T) (said []string) {
	t.Helper()
	started, err := s.ebs.StartSnapshot(t.Context(), &ebs.StartSnapshotInput{
		VolumeSize: aws.Int64(2), Description: aws.String("a disk"), Tags: []ebstypes.Tag{{Key: aws.String("k"), Value: aws.String("v")}}})
	if err != nil {
		t.Fatal(err)
	}
	id := *started.SnapshotId
	said = append(said, fmt.Sprint(started.Status, *started.VolumeSize, *started.OwnerId, *started.Description, *started.Tags[0].Key, *started.Tags[0].Value))
	blocks := map[int][]byte{0: blockOf("a"), 3: blockOf("b"), 900: blockOf("c")}
	for _, index := range sortedKeys(blocks) {
		s.put(t, id, index, blocks[index])
	}
	done, err := s.ebs.CompleteSnapshot(t.Context(), completion(id, blocks))
	if err != nil {
		t.Fatal(err)
	}
	said = append(said, string(done.Status))
	for _, index := range sortedKeys(blocks) {
		out, err := s.ebs.GetSnapshotBlock(t.Context(), &ebs.GetSnapshotBlockInput{SnapshotId: &id, BlockIndex: aws.Int32(int32(index)), BlockToken: s.token(t, id, index)})
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(out.BlockData)
		said = append(said, fmt.Sprint(index, *sha(data), *out.Checksum, out.ChecksumAlgorithm, *out.DataLength, err))
	}
	described, err := s.ec2.DescribeSnapshots(t.Context(), &ec2.DescribeSnapshotsInput{SnapshotIds: []string{id}})
	if err != nil {
		t.Fatal(err)
	}
	d := described.Snapshots[0]
	said = append(said, fmt.Sprint(*d.VolumeSize, *d.Description, *d.OwnerId, *d.Encrypted, d.State, *d.Progress, *d.Tags[0].Key))
	for range 2 {
		_, err := s.ec2.DeleteSnapshot(t.Context(), &ec2.DeleteSnapshotInput{SnapshotId: &id})
		said = append(said, codeOf(err))
	}
	return said
}

// token is a block's; moto's lists cannot be read, since its indexes are strings, and it takes any token.
func (s *shop) token(t *testing.T, id string, index int) *string {
	t.Helper()
	if s.account == nil {
		return aws.String("AAAA")
	}
	list, err := s.ebs.ListSnapshotBlocks(t.Context(), &ebs.ListSnapshotBlocksInput{SnapshotId: &id, StartingBlockIndex: aws.Int32(int32(index))})
	if err != nil || len(list.Blocks) == 0 {
		t.Fatalf("block %d: %+v, %v", index, list, err)
	}
	return list.Blocks[0].BlockToken
}

func (s *shop) sayImages(t *testing.T) (said []string) {
	t.Helper()
	snapshot := s.publish(t, ebs.StartSnapshotInput{}, map[int][]byte{0: blockOf("boot")})
	id := s.register(t, imageOf("hardtack-1", snapshot))
	copied, err := s.ec2.CopyImage(t.Context(), &ec2.CopyImageInput{Name: aws.String("hardtack-2"), SourceImageId: &id, SourceRegion: aws.String(HomeRegion)})
	if err != nil {
		t.Fatal(err)
	}
	names := []string{id, "ONE", *copied.ImageId, "TWO"}
	for _, in := range []*ec2.DescribeImagesInput{
		{ImageIds: []string{id}}, {ImageIds: []string{*copied.ImageId}}, {ImageIds: []string{"ami-0123456789abcdef0"}}, {ImageIds: []string{"x-1"}},
		{Owners: []string{"self"}}, {Owners: []string{"self"}, Filters: []types.Filter{{Name: aws.String("tag-key"), Values: []string{"none"}}}},
	} {
		out, err := s.ec2.DescribeImages(t.Context(), in)
		if err != nil {
			said = append(said, told(err, names...))
			continue
		}
		var lines []string
		for _, i := range out.Images {
			lines = append(lines, fmt.Sprint(*i.Name, *i.Description, i.State, *i.OwnerId, i.ImageType))
		}
		slices.Sort(lines)
		said = append(said, strings.Join(lines, "; "))
	}
	said = append(said, s.sayPermissions(t, id, names)...)
	for _, name := range []string{id, id, "ami-0123456789abcdef0"} {
		_, err := s.ec2.DeregisterImage(t.Context(), &ec2.DeregisterImageInput{ImageId: &name})
		said = append(said, codeOf(err))
	}
	return said
}

func (s *shop) sayPermissions(t *testing.T, id string, names []string) (said []string) {
	t.Helper()
	account := func(id string) []types.LaunchPermission { return []types.LaunchPermission{{UserId: &id}} }
	organisation := []types.LaunchPermission{{OrganizationArn: aws.String("arn:aws:organizations::111122223333:organization/o-abcdefghij")}}
	for _, m := range []types.LaunchPermissionModifications{
		{Add: account("222233334444")}, {Add: account("222233334444")}, {Add: account("222")}, {Add: organisation}, {Add: account("333344445555")},
	} {
		_, err := s.ec2.ModifyImageAttribute(t.Context(), &ec2.ModifyImageAttributeInput{ImageId: &id, LaunchPermission: &m})
		said = append(said, told(err, names...))
		out, err := s.ec2.DescribeImageAttribute(t.Context(), &ec2.DescribeImageAttributeInput{ImageId: &id, Attribute: types.ImageAttributeNameLaunchPermission})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range out.LaunchPermissions {
			said = append(said, aws.ToString(p.UserId)+aws.ToString(p.OrganizationArn))
		}
	}
	return said
}

func (s *shop) sayHistory(t *testing.T) (said []string) {
	t.Helper()
	for n := range 3 {
		in := put("/demo/p", fmt.Sprint("v", n), ssmtypes.ParameterTypeString)
		in.Overwrite = aws.Bool(n > 0)
		if _, err := s.ssm.PutParameter(t.Context(), in); err != nil {
			t.Fatal(err)
		}
	}
	for p := ssm.NewGetParameterHistoryPaginator(s.ssm, &ssm.GetParameterHistoryInput{Name: aws.String("/demo/p"), MaxResults: aws.Int32(2)}); p.HasMorePages(); {
		page, err := p.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range page.Parameters {
			said = append(said, fmt.Sprint(*h.Name, *h.Value, h.Version, h.Type, aws.ToString(h.DataType)))
		}
	}
	_, err := s.ssm.GetParameterHistory(t.Context(), &ssm.GetParameterHistoryInput{Name: aws.String("/demo/none")})
	return append(said, codeOf(err))
}

package awsfake

// bucketShape are the properties of AWS::S3::Bucket that are modelled.
type bucketShape struct {
	Name       string `cfn:"BucketName" update:"replace"`
	Encryption *struct {
		Rules []struct {
			Default struct {
				Algorithm string `cfn:"SSEAlgorithm,required"`
				Key       string `cfn:"KMSMasterKeyID"`
			} `cfn:"ServerSideEncryptionByDefault"`
			BucketKey bool `cfn:"BucketKeyEnabled"`
		} `cfn:"ServerSideEncryptionConfiguration,required"`
	} `cfn:"BucketEncryption"`
	Public *struct {
		BlockACLs      bool `cfn:"BlockPublicAcls"`
		BlockPolicy    bool `cfn:"BlockPublicPolicy"`
		IgnoreACLs     bool `cfn:"IgnorePublicAcls"`
		RestrictPolicy bool `cfn:"RestrictPublicBuckets"`
	} `cfn:"PublicAccessBlockConfiguration"`
	Versioning *struct {
		Status string `cfn:"Status,required"`
	} `cfn:"VersioningConfiguration"`
	Lifecycle *struct {
		Rules []lifecycleRule `cfn:"Rules,required"`
	} `cfn:"LifecycleConfiguration"`
	Tags []LaunchTag `cfn:"Tags"`
}

type lifecycleRule struct {
	ID         string `cfn:"Id"`
	Status     string `cfn:"Status,required"`
	Days       int    `cfn:"ExpirationInDays"`
	Markers    bool   `cfn:"ExpiredObjectDeleteMarker"`
	Noncurrent *struct {
		Days int `cfn:"NoncurrentDays,required"`
	} `cfn:"NoncurrentVersionExpiration"`
	Abort *struct {
		Days int `cfn:"DaysAfterInitiation,required"`
	} `cfn:"AbortIncompleteMultipartUpload"`
}

type bucketPolicyShape struct {
	Bucket   string `cfn:"Bucket,required" update:"replace"`
	Document any    `cfn:"PolicyDocument,required"`
}

// bucket checks a bucket's properties against the rules of S3.
func (p *provision) bucket(want *bucketShape) (Bucket, error) {
	b := Bucket{Name: p.nameOr(want.Name), Tags: p.tagged(want.Tags)}
	if want.Encryption != nil {
		for _, r := range want.Encryption.Rules {
			switch d := r.Default; {
			case d.Algorithm != "AES256" && d.Algorithm != "aws:kms":
				return b, refuse("MalformedXML", "awsfake models the algorithms AES256 and aws:kms, not %q", d.Algorithm)
			case d.Algorithm == "AES256" && d.Key != "":
				return b, refuse("InvalidArgument", "a KMSMasterKeyID is not applicable if the default sse algorithm is not aws:kms or aws:kms:dsse")
			default:
				b.Key = d.Key
			}
		}
	}
	if want.Public == nil { // as S3 has it for new buckets since April 2023
		b.Private, b.BlockPolicy = true, true
	} else {
		b.Private, b.BlockPolicy = want.Public.RestrictPolicy, want.Public.BlockPolicy
	}
	b.Versioned = want.Versioning != nil && want.Versioning.Status == "Enabled"
	if want.Lifecycle == nil {
		return b, nil
	}
	ids := map[string]bool{}
	for _, r := range want.Lifecycle.Rules {
		switch {
		case ids[r.ID]:
			return b, refuse("InvalidArgument", "Rule ID must be unique. Found same ID for more than one rule")
		case r.Days != 0 && r.Markers:
			return b, refuse("MalformedXML", "Days and ExpiredObjectDeleteMarker may not be in one rule")
		case r.Days == 0 && !r.Markers && r.Noncurrent == nil && r.Abort == nil:
			return b, refuse("InvalidRequest", "At least one action needs to be specified in a rule")
		case r.Status != "Enabled":
			return b, refuse("MalformedXML", "awsfake models rules that are enabled")
		}
		ids[r.ID] = true
		b.Days = max(b.Days, r.Days)
	}
	return b, nil
}

func (p *provision) s3() *S3 { return p.cf.account.regional.s3 }

func bucketKinds() map[string]resourceKind {
	return map[string]resourceKind{
		"AWS::S3::Bucket": kind[bucketShape]{
			name: "BucketName", attributes: []string{"Arn"},
			make: func(p *provision, want *bucketShape) error {
				b, err := p.bucket(want)
				if err == nil {
					err = p.s3().create(b)
				}
				if err == nil {
					p.setID(b.Name, "Arn", "arn:aws:s3:::"+b.Name)
				}
				return err
			},
			change: func(p *provision, want, _ *bucketShape) error {
				b, err := p.bucket(want)
				if err == nil {
					p.s3().buckets[p.physical].Bucket = b
				}
				return err
			},
			drop: func(p *provision, _ *bucketShape) (bool, error) {
				if b := p.s3().buckets[p.physical]; b != nil && len(b.objects) > 0 {
					return true, refuse("BucketNotEmpty", "The bucket you tried to delete is not empty")
				}
				delete(p.s3().buckets, p.physical)
				return true, nil
			},
		},
		"AWS::S3::BucketPolicy": kind[bucketPolicyShape]{
			make: func(p *provision, want *bucketPolicyShape) error {
				p.setID(want.Bucket)
				return p.bucketPolicy(want)
			},
			change: func(p *provision, want, _ *bucketPolicyShape) error { return p.bucketPolicy(want) },
			drop: func(p *provision, was *bucketPolicyShape) (bool, error) {
				if b := p.s3().buckets[was.Bucket]; b != nil {
					b.policy, b.public = nil, nil
				}
				return true, nil
			},
		},
	}
}

func (p *provision) bucketPolicy(want *bucketPolicyShape) error {
	b := p.s3().buckets[want.Bucket]
	if b == nil {
		return refuse("NoSuchBucket", "The specified bucket does not exist")
	}
	return b.setPolicy(want.Document)
}

BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0008');
CREATE TABLE annotation (
	id INTEGER NOT NULL, 
	run_id VARCHAR(64) NOT NULL, 
	comment TEXT NOT NULL, 
	bug_link TEXT NOT NULL, 
	tester TEXT NOT NULL, 
	annotated_at DOUBLE NOT NULL, 
	CONSTRAINT pk_annotation PRIMARY KEY (id), 
	CONSTRAINT fk_annotation_run_id FOREIGN KEY(run_id) REFERENCES run (run_id)
);
CREATE TABLE api_token (
	name VARCHAR(64) NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	added_at DOUBLE NOT NULL, 
	CONSTRAINT pk_api_token PRIMARY KEY (name), 
	CONSTRAINT uq_api_token_digest UNIQUE (digest)
);
CREATE TABLE audit_entry (
	id INTEGER NOT NULL, 
	changed_at DOUBLE NOT NULL, 
	actor TEXT NOT NULL, 
	action VARCHAR(32) NOT NULL, 
	run_id VARCHAR(64), 
	old TEXT NOT NULL, 
	new TEXT NOT NULL, 
	CONSTRAINT pk_audit_entry PRIMARY KEY (id)
);
CREATE TABLE baseline (
	id INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	run_id VARCHAR(64) NOT NULL, 
	set_at DOUBLE NOT NULL, 
	CONSTRAINT pk_baseline PRIMARY KEY (id), 
	CONSTRAINT fk_baseline_run_id FOREIGN KEY(run_id) REFERENCES run (run_id)
);
INSERT INTO "baseline" VALUES(1,'baseline-of-0.1.0','00000000-0000-4000-8000-000000000010',1.79581564277373337745e+09);
CREATE TABLE bed (
	name VARCHAR(64) NOT NULL, 
	token INTEGER NOT NULL, 
	holder TEXT NOT NULL, 
	lease_until DOUBLE NOT NULL, 
	quarantine TEXT NOT NULL, 
	quarantined_at DOUBLE NOT NULL, 
	quarantined_by TEXT NOT NULL, 
	CONSTRAINT pk_bed PRIMARY KEY (name)
);
CREATE TABLE bed_calibration (
	id INTEGER NOT NULL, 
	bed VARCHAR(64) NOT NULL, 
	run_id VARCHAR(64) NOT NULL, 
	load_digest VARCHAR(64) NOT NULL, 
	transport TEXT NOT NULL, 
	frame TEXT NOT NULL, 
	ceiling_fps DOUBLE NOT NULL, 
	measured_at DOUBLE NOT NULL, 
	is_good BOOLEAN NOT NULL, 
	CONSTRAINT pk_bed_calibration PRIMARY KEY (id), 
	CONSTRAINT fk_bed_calibration_bed FOREIGN KEY(bed) REFERENCES bed (name)
);
CREATE TABLE bed_occupancy (
	id INTEGER NOT NULL, 
	bed VARCHAR(64) NOT NULL, 
	token INTEGER NOT NULL, 
	run_id VARCHAR(64) NOT NULL, 
	request_id INTEGER, 
	holder TEXT NOT NULL, 
	taken_at DOUBLE NOT NULL, 
	waited_s DOUBLE, 
	ended_at DOUBLE, 
	outcome TEXT NOT NULL, 
	CONSTRAINT pk_bed_occupancy PRIMARY KEY (id), 
	CONSTRAINT fk_bed_occupancy_bed FOREIGN KEY(bed) REFERENCES bed (name), 
	CONSTRAINT fk_bed_occupancy_request_id FOREIGN KEY(request_id) REFERENCES request (id)
);
CREATE TABLE comparison (
	id INTEGER NOT NULL, 
	run_id VARCHAR(64) NOT NULL, 
	baseline_run_id VARCHAR(64) NOT NULL, 
	dut TEXT NOT NULL, 
	baseline_dut TEXT NOT NULL, 
	verdict VARCHAR(16) NOT NULL, 
	compared_at DOUBLE NOT NULL, 
	CONSTRAINT pk_comparison PRIMARY KEY (id), 
	CONSTRAINT fk_comparison_run_id FOREIGN KEY(run_id) REFERENCES run (run_id) ON DELETE CASCADE, 
	CONSTRAINT fk_comparison_baseline_run_id FOREIGN KEY(baseline_run_id) REFERENCES run (run_id) ON DELETE CASCADE
);
CREATE TABLE dut_version (
	dut_id INTEGER NOT NULL, 
	program TEXT NOT NULL, 
	version TEXT NOT NULL, 
	CONSTRAINT pk_dut_version PRIMARY KEY (dut_id, program), 
	CONSTRAINT fk_dut_version_dut_id FOREIGN KEY(dut_id) REFERENCES run_dut (id)
);
INSERT INTO "dut_version" VALUES(1,'ovs','3.1.0');
CREATE TABLE finding (
	id INTEGER NOT NULL, 
	comparison_id INTEGER NOT NULL, 
	topology TEXT NOT NULL, 
	dut TEXT NOT NULL, 
	method TEXT NOT NULL, 
	frame TEXT NOT NULL, 
	metric TEXT NOT NULL, 
	verdict VARCHAR(16) NOT NULL, 
	ratio DOUBLE, 
	CONSTRAINT pk_finding PRIMARY KEY (id), 
	CONSTRAINT fk_finding_comparison_id FOREIGN KEY(comparison_id) REFERENCES comparison (id) ON DELETE CASCADE
);
CREATE TABLE judgement (
	id INTEGER NOT NULL, 
	run_id VARCHAR(64) NOT NULL, 
	verdict VARCHAR(16) NOT NULL, 
	tester TEXT NOT NULL, 
	judged_at DOUBLE NOT NULL, 
	CONSTRAINT pk_judgement PRIMARY KEY (id), 
	CONSTRAINT fk_judgement_run_id FOREIGN KEY(run_id) REFERENCES run (run_id)
);
CREATE TABLE measurement (
	id INTEGER NOT NULL, 
	run_id VARCHAR(64) NOT NULL, 
	number INTEGER NOT NULL, 
	dut TEXT NOT NULL, 
	driver TEXT NOT NULL, 
	topology TEXT NOT NULL, 
	method TEXT NOT NULL, 
	frame TEXT NOT NULL, 
	repetition INTEGER NOT NULL, 
	started_at DOUBLE NOT NULL, 
	elapsed_s DOUBLE NOT NULL, 
	status VARCHAR(16) NOT NULL, 
	headline TEXT NOT NULL, 
	raw TEXT NOT NULL, 
	CONSTRAINT pk_measurement PRIMARY KEY (id), 
	CONSTRAINT fk_measurement_run_id FOREIGN KEY(run_id) REFERENCES run (run_id)
);
INSERT INTO "measurement" VALUES(1,'00000000-0000-4000-8000-000000000010',0,'ovs','ovs','P2P','throughput','64',0,1700000000.0,7.5,'ok','throughput_fps','{"number":0,"dut":"ovs","topology":"P2P","method":"throughput","frame":{"name":"64","parts":[[64,1]]},"repetition":0,"is_noise_floor":false,"started_at":1700000000.0,"elapsed_s":7.5,"outcome":{"status":"ok","reasons":[],"headline":"throughput_fps","compared":[],"metrics":{"throughput_fps":{"value":999916.9598831508,"unit":"frames/s","better":"higher","resolution":0.0},"throughput_bps":{"value":511957483.4601732,"unit":"bit/s","better":"higher","resolution":0.0}},"curves":[{"name":"loss","x_name":"offered load","x_unit":"frames/s","y_name":"loss ratio","y_unit":"ratio","points":[[499958.47994157544,0.0],[599950.1759298905,0.0],[699941.8719182055,0.0],[799933.5679065206,0.0],[899925.2638948357,0.0],[999916.9598831509,0.0],[1099908.6558714658,0.09090909090909094],[1199900.351859781,0.16666666666666663],[1299892.047848096,0.23076923076923073],[1399883.743836411,0.2857142857142857],[1499875.439824726,0.33333333333333337],[1599867.1358130411,0.375],[1699858.8318013563,0.4117647058823529],[1799850.5277896714,0.4444444444444444],[1899842.2237779864,0.4736842105263158],[1999833.9197663018,0.5]]}]},"trials":[{"request":{"load":{"frame":{"name":"64","parts":[[64,1]]},"rate_fps":1499875.4398247262,"bidirectional":true,"flows":1,"vlans":[0,0],"vnis":[0,0],"addresses":"fixed","stations":1,"first_station":0,"burst_frames":null,"flow_set":null,"attack_fps":0.0,"learning":true},"duration_s":1.0,"purpose":"search"},"started_at":1700000000.0,"verdict":"valid","reasons":[],"directions":[{"sender":"left","receiver":"right","intended_frames":1499875,"sent_frames":1499875,"refused_frames":0,"received_frames":1004917,"duplicate_frames":0,"reordered_frames":0,"damaged_frames":0,"foreign_frames":0,"transmit_s":1.0,"latency":{"frames":1000,"min_ns":4000.0,"mean_ns":9000.0,"max_ns":250000.0,"percentiles_ns":{"50":8000.0,"90":15000.0,"99":40000.0,"99.9":120000.0},"precision":0.01},"port_sent_frames":null,"port_received_frames":null,"loss":null},{"sender":"right","receiver":"left","intended_frames":1499875,"sent_frames":1499875,"refused_frames":0,"received_frames":1004917,"duplicate_frames":0,"reordered_frames":0,"damaged_frames":0,"foreign_frames":0,"transmit_s":1.0,"latency":{"frames":1000,"min_ns":4000.0,"mean_ns":9000.0,"max_ns":250000.0,"percentiles_ns":{"50":8000.0,"90":15000.0,"99":40000.0,"99.9":120000.0},"precision":0.01},"port_sent_frames":null,"port_received_frames":null,"loss":null}],"clock_error":null,"drop_counters":{},"disturbance":null,"is_disturbed":false,"is_repeated":false},{"request":{"load":{"frame":{"name":"64","parts":[[64,1]]},"rate_fps":999916.9598831508,"bidirectional":true,"flows":1,"vlans":[0,0],"vnis":[0,0],"addresses":"fixed","stations":1,"first_station":0,"burst_frames":null,"flow_set":null,"attack_fps":0.0,"learning":true},"duration_s":1.0,"purpose":"validation"},"started_at":1700000001.1,"verdict":"valid","reasons":[],"directions":[{"sender":"left","receiver":"right","intended_frames":999916,"sent_frames":999916,"refused_frames":0,"received_frames":999916,"duplicate_frames":0,"reordered_frames":0,"damaged_frames":0,"foreign_frames":0,"transmit_s":1.0,"latency":{"frames":1000,"min_ns":4000.0,"mean_ns":9000.0,"max_ns":250000.0,"percentiles_ns":{"50":8000.0,"90":15000.0,"99":40000.0,"99.9":120000.0},"precision":0.01},"port_sent_frames":null,"port_received_frames":null,"loss":null},{"sender":"right","receiver":"left","intended_frames":999916,"sent_frames":999916,"refused_frames":0,"received_frames":999916,"duplicate_frames":0,"reordered_frames":0,"damaged_frames":0,"foreign_frames":0,"transmit_s":1.0,"latency":{"frames":1000,"min_ns":4000.0,"mean_ns":9000.0,"max_ns":250000.0,"percentiles_ns":{"50":8000.0,"90":15000.0,"99":40000.0,"99.9":120000.0},"precision":0.01},"port_sent_frames":null,"port_received_frames":null,"loss":null}],"clock_error":null,"drop_counters":{},"disturbance":null,"is_disturbed":false,"is_repeated":false}],"dut_counters":{"1.rx_frames":1000000,"1.drops.ring_full":17},"steps":[]}');
CREATE TABLE metric (
	measurement_id INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	value DOUBLE NOT NULL, 
	unit TEXT NOT NULL, 
	better VARCHAR(16) NOT NULL, 
	CONSTRAINT pk_metric PRIMARY KEY (measurement_id, name), 
	CONSTRAINT fk_metric_measurement_id FOREIGN KEY(measurement_id) REFERENCES measurement (id)
);
INSERT INTO "metric" VALUES(1,'throughput_fps',9.99916959883150761011e+05,'frames/s','higher');
INSERT INTO "metric" VALUES(1,'throughput_bps',5.11957483460173189658e+08,'bit/s','higher');
CREATE TABLE notification (
	id INTEGER NOT NULL, 
	request_id INTEGER NOT NULL, 
	round INTEGER NOT NULL, 
	stage VARCHAR(16) NOT NULL, 
	target TEXT NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	run_id VARCHAR(64), 
	outcome VARCHAR(32) NOT NULL, 
	reason TEXT NOT NULL, 
	happened_at DOUBLE NOT NULL, 
	delivery VARCHAR(36) NOT NULL, 
	attempts INTEGER NOT NULL, 
	last_error TEXT NOT NULL, 
	asked_at DOUBLE NOT NULL, 
	not_before DOUBLE NOT NULL, 
	changed_at DOUBLE NOT NULL, 
	holder TEXT NOT NULL, 
	held_until DOUBLE NOT NULL, 
	CONSTRAINT pk_notification PRIMARY KEY (id), 
	CONSTRAINT fk_notification_request_id FOREIGN KEY(request_id) REFERENCES request (id) ON DELETE CASCADE
);
CREATE TABLE request (
	id INTEGER NOT NULL, 
	source VARCHAR(64) NOT NULL, 
	build TEXT NOT NULL, 
	scenario TEXT NOT NULL, 
	bed_class VARCHAR(64) NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	"order" TEXT NOT NULL, 
	package TEXT NOT NULL, 
	tag TEXT NOT NULL, 
	built_at DOUBLE NOT NULL, 
	priority INTEGER NOT NULL, 
	owner TEXT NOT NULL, 
	attempts INTEGER NOT NULL, 
	duplicates INTEGER NOT NULL, 
	last_error TEXT NOT NULL, 
	event TEXT NOT NULL, 
	delivery TEXT NOT NULL, 
	payload BLOB NOT NULL, 
	superseded_by INTEGER, 
	engine VARCHAR(64) NOT NULL, 
	job_key TEXT NOT NULL, 
	lease_holder TEXT NOT NULL, 
	lease_until DOUBLE NOT NULL, 
	not_before DOUBLE NOT NULL, 
	run_id VARCHAR(64), 
	verdict VARCHAR(32) NOT NULL, 
	created_at DOUBLE NOT NULL, 
	changed_at DOUBLE NOT NULL, 
	served_at DOUBLE NOT NULL, 
	beds TEXT DEFAULT '' NOT NULL, 
	CONSTRAINT pk_request PRIMARY KEY (id), 
	CONSTRAINT fk_request_superseded_by FOREIGN KEY(superseded_by) REFERENCES request (id)
);
CREATE TABLE request_change (
	id INTEGER NOT NULL, 
	request_id INTEGER NOT NULL, 
	changed_at DOUBLE NOT NULL, 
	old VARCHAR(16) NOT NULL, 
	new VARCHAR(16) NOT NULL, 
	actor TEXT NOT NULL, 
	why TEXT NOT NULL, 
	CONSTRAINT pk_request_change PRIMARY KEY (id), 
	CONSTRAINT fk_request_change_request_id FOREIGN KEY(request_id) REFERENCES request (id)
);
CREATE TABLE run (
	run_id VARCHAR(64) NOT NULL, 
	name TEXT NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	is_ended BOOLEAN NOT NULL, 
	started_at DOUBLE NOT NULL, 
	ended_at DOUBLE NOT NULL, 
	lab_version TEXT NOT NULL, 
	generator_version TEXT NOT NULL, 
	supersedes VARCHAR(64), 
	CONSTRAINT pk_run PRIMARY KEY (run_id)
);
INSERT INTO "run" VALUES('00000000-0000-4000-8000-000000000010','RUN_OF_0_1_0','finished',1,1700000000.0,1700000010.0,'0.1.0','ringroad 0.4.0',NULL);
CREATE TABLE run_dut (
	id INTEGER NOT NULL, 
	run_id VARCHAR(64) NOT NULL, 
	position INTEGER NOT NULL, 
	label TEXT NOT NULL, 
	driver TEXT NOT NULL, 
	CONSTRAINT pk_run_dut PRIMARY KEY (id), 
	CONSTRAINT fk_run_dut_run_id FOREIGN KEY(run_id) REFERENCES run (run_id)
);
INSERT INTO "run_dut" VALUES(1,'00000000-0000-4000-8000-000000000010',0,'ovs','ovs');
CREATE TABLE run_head (
	run_id VARCHAR(64) NOT NULL, 
	sequence INTEGER NOT NULL, 
	raw TEXT NOT NULL, 
	CONSTRAINT pk_run_head PRIMARY KEY (run_id, sequence), 
	CONSTRAINT fk_run_head_run_id FOREIGN KEY(run_id) REFERENCES run (run_id)
);
INSERT INTO "run_head" VALUES('00000000-0000-4000-8000-000000000010',0,'{"schema_version":1,"run_id":"00000000-0000-4000-8000-000000000010","name":"RUN_OF_0_1_0","scenario":{"scenarios":[{"name":"RUN_OF_0_1_0","topology":"P2P","physical":"veth","flows":64,"bidirectional":true,"repetitions":1}]},"command":["ringroad-lab","run","RUN_OF_0_1_0","--seed","it''s fabricated"],"lab_version":"0.1.0","generator_version":"ringroad 0.4.0","started_at":1700000000.0,"ended_at":1700000010.0,"state":"finished","failure":"","duts":[{"label":"ovs","driver":"ovs","settings":{"batch":32},"versions":{"ovs":"3.1.0"},"ports":{"1":"veth, AF_XDP native, copy","2":"veth, AF_XDP native, copy"},"build":"","guest_build":"","files":{},"work_of_sender":""}],"facts":{"machine":{"board":"fabricated","hypervisor":"none"},"processor":{"model":"Fabricated 9000","cores":"2","governor":"performance"},"kernel":{"release":"6.1.0-56-amd64","command line":"quiet mitigations=auto"}},"link_bps":null,"ceilings":[{"transport":"veth","frame":{"name":"64","parts":[[64,1]]},"ceiling_fps":7000000.0,"clock_error":0.00002,"cause":""}],"noise_floors":[{"dut":"ovs","method":"throughput","frame_name":"64","metric":"throughput_fps","topology":"","pairs":5,"ratio_interval":[0.985,1.016]}],"measurements":[],"series":[{"name":"processor time","subject":"ovs-vswitchd","unit":"%","points":[[1700000000.0,95.27549237953228],[1700000005.0,85.10138051478843]]},{"name":"memory","subject":"ovs-vswitchd","unit":"bytes","points":[[1700000000.0,50990870.17418388],[1700000005.0,50898982.12957747]]},{"name":"steal time","subject":"machine","unit":"%","points":[[1700000000.0,3.9095578363365777],[1700000005.0,4.732340106813079]]}],"logs":[{"source":"ovs-vswitchd","text":"bridge br0: added interface\n","is_cut":false}],"deviations":["Trials last 1 s; RFC 2544 section 24 asks for 60 s.","One frame size of IMIX is not standard."],"warnings":[],"labels":{"version":"3.1.0","branch":"main"},"planned_s":null,"took_s":null,"supersedes":null}');
CREATE TABLE run_label (
	run_id VARCHAR(64) NOT NULL, 
	name TEXT NOT NULL, 
	value TEXT NOT NULL, 
	CONSTRAINT pk_run_label PRIMARY KEY (run_id, name), 
	CONSTRAINT fk_run_label_run_id FOREIGN KEY(run_id) REFERENCES run (run_id)
);
INSERT INTO "run_label" VALUES('00000000-0000-4000-8000-000000000010','version','3.1.0');
INSERT INTO "run_label" VALUES('00000000-0000-4000-8000-000000000010','branch','main');
CREATE TABLE source_count (
	source VARCHAR(64) NOT NULL, 
	outcome VARCHAR(32) NOT NULL, 
	messages INTEGER NOT NULL, 
	last_at DOUBLE NOT NULL, 
	CONSTRAINT pk_source_count PRIMARY KEY (source, outcome)
);
CREATE TABLE source_position (
	source VARCHAR(64) NOT NULL, 
	part TEXT NOT NULL, 
	position BIGINT NOT NULL, 
	changed_at DOUBLE NOT NULL, 
	CONSTRAINT pk_source_position PRIMARY KEY (source, part)
);
CREATE INDEX ix_run_name ON run (name);
CREATE INDEX ix_run_supersedes ON run (supersedes);
CREATE INDEX ix_run_started_at ON run (started_at);
CREATE INDEX ix_baseline_name ON baseline (name);
CREATE INDEX ix_judgement_run_id ON judgement (run_id);
CREATE INDEX ix_measurement_dut ON measurement (dut);
CREATE UNIQUE INDEX uq_measurement_run_id_number ON measurement (run_id, number);
CREATE INDEX ix_run_dut_driver ON run_dut (driver);
CREATE INDEX ix_run_dut_run_id ON run_dut (run_id);
CREATE INDEX ix_run_dut_label ON run_dut (label);
CREATE INDEX ix_run_label_name_value ON run_label (name, value);
CREATE INDEX ix_dut_version_version ON dut_version (version);
CREATE INDEX ix_metric_name ON metric (name);
CREATE INDEX ix_annotation_run_id ON annotation (run_id);
CREATE INDEX ix_audit_entry_run_id ON audit_entry (run_id);
CREATE TRIGGER audit_entry_no_update BEFORE UPDATE ON audit_entry BEGIN SELECT RAISE(ABORT, 'the audit log is only added to'); END;
CREATE TRIGGER audit_entry_no_delete BEFORE DELETE ON audit_entry BEGIN SELECT RAISE(ABORT, 'the audit log is only added to'); END;
CREATE INDEX ix_comparison_baseline_run_id ON comparison (baseline_run_id);
CREATE UNIQUE INDEX uq_comparison_sides ON comparison (run_id, baseline_run_id, dut, baseline_dut);
CREATE INDEX ix_finding_comparison_id ON finding (comparison_id);
CREATE INDEX ix_request_run_id ON request (run_id);
CREATE UNIQUE INDEX uq_request_key ON request (source, build, scenario, bed_class);
CREATE INDEX ix_request_state_bed_class ON request (state, bed_class);
CREATE INDEX ix_request_package_tag ON request (package, tag);
CREATE INDEX ix_request_source_delivery ON request (source, delivery);
CREATE INDEX ix_request_change_request_id ON request_change (request_id);
CREATE INDEX ix_bed_occupancy_taken_at ON bed_occupancy (taken_at);
CREATE INDEX ix_bed_occupancy_run_id ON bed_occupancy (run_id);
CREATE UNIQUE INDEX uq_bed_occupancy_bed_token ON bed_occupancy (bed, token);
CREATE INDEX ix_bed_calibration_bed_load_digest_transport_frame ON bed_calibration (bed, load_digest, transport, frame);
CREATE INDEX ix_request_owner_priority_served_at ON request (owner, priority, served_at);
CREATE UNIQUE INDEX uq_notification_key ON notification (request_id, round, stage, target);
CREATE INDEX ix_notification_state_target ON notification (state, target);
COMMIT;

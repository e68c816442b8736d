BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0001');
CREATE TABLE baseline (
	id INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	run_id VARCHAR(64) NOT NULL, 
	set_at DOUBLE NOT NULL, 
	CONSTRAINT pk_baseline PRIMARY KEY (id), 
	CONSTRAINT fk_baseline_run_id FOREIGN KEY(run_id) REFERENCES run (run_id)
);
INSERT INTO "baseline" VALUES(1,'old-baseline','00000000-0000-4000-8000-000000000001',1700000100.0);
CREATE TABLE dut_version (
	dut_id INTEGER NOT NULL, 
	program TEXT NOT NULL, 
	version TEXT NOT NULL, 
	CONSTRAINT pk_dut_version PRIMARY KEY (dut_id, program), 
	CONSTRAINT fk_dut_version_dut_id FOREIGN KEY(dut_id) REFERENCES run_dut (id)
);
INSERT INTO "dut_version" VALUES(1,'ovs','3.1.0');
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
INSERT INTO "measurement" VALUES(1,'00000000-0000-4000-8000-000000000001',0,'ovs','ovs','P2P','throughput','64',0,1700000000.0,7.5,'ok','throughput_fps','{"number":0,"dut":"ovs","topology":"P2P","method":"throughput","frame":{"name":"64","parts":[[64,1]]},"repetition":0,"started_at":1700000000.0,"elapsed_s":7.5,"outcome":{"status":"ok","reasons":[],"headline":"throughput_fps","metrics":{"throughput_fps":{"value":237952.5,"unit":"frames/s","better":"higher"},"throughput_bps":{"value":121831680.0,"unit":"bit/s","better":"higher"}},"curves":[{"name":"loss","x_name":"offered load","x_unit":"frames/s","y_name":"loss ratio","y_unit":"ratio","points":[[118976.25,0.0],[142771.5,0.0],[166566.75,0.0],[190362.0,0.0],[214157.25,0.0],[237952.5,0.0],[261747.75,0.09090909090909094],[285543.0,0.16666666666666663],[309338.25,0.23076923076923073],[333133.5,0.2857142857142857],[356928.75,0.33333333333333337],[380724.0,0.375],[404519.25,0.4117647058823529],[428314.5,0.4444444444444444],[452109.75,0.4736842105263158],[475905.0,0.5]]}]},"trials":[{"request":{"load":{"frame":{"name":"64","parts":[[64,1]]},"rate_fps":356928.75,"bidirectional":true,"flows":1,"addresses":"fixed","stations":1,"burst_frames":null,"learning":true},"duration_s":1.0,"purpose":"search"},"started_at":1700000000.0,"verdict":"valid","reasons":[],"directions":[{"sender":"left","receiver":"right","intended_frames":356928,"sent_frames":356928,"received_frames":239142,"duplicate_frames":0,"reordered_frames":0,"damaged_frames":0,"foreign_frames":0,"transmit_s":1.0,"latency":{"frames":1000,"min_ns":4000.0,"mean_ns":9000.0,"max_ns":250000.0,"percentiles_ns":{"50":8000.0,"90":15000.0,"99":40000.0,"99.9":120000.0},"precision":0.01}},{"sender":"right","receiver":"left","intended_frames":356928,"sent_frames":356928,"received_frames":239142,"duplicate_frames":0,"reordered_frames":0,"damaged_frames":0,"foreign_frames":0,"transmit_s":1.0,"latency":{"frames":1000,"min_ns":4000.0,"mean_ns":9000.0,"max_ns":250000.0,"percentiles_ns":{"50":8000.0,"90":15000.0,"99":40000.0,"99.9":120000.0},"precision":0.01}}],"clock_error":null},{"request":{"load":{"frame":{"name":"64","parts":[[64,1]]},"rate_fps":237952.5,"bidirectional":true,"flows":1,"addresses":"fixed","stations":1,"burst_frames":null,"learning":true},"duration_s":1.0,"purpose":"validation"},"started_at":1700000001.1,"verdict":"valid","reasons":[],"directions":[{"sender":"left","receiver":"right","intended_frames":237952,"sent_frames":237952,"received_frames":237952,"duplicate_frames":0,"reordered_frames":0,"damaged_frames":0,"foreign_frames":0,"transmit_s":1.0,"latency":{"frames":1000,"min_ns":4000.0,"mean_ns":9000.0,"max_ns":250000.0,"percentiles_ns":{"50":8000.0,"90":15000.0,"99":40000.0,"99.9":120000.0},"precision":0.01}},{"sender":"right","receiver":"left","intended_frames":237952,"sent_frames":237952,"received_frames":237952,"duplicate_frames":0,"reordered_frames":0,"damaged_frames":0,"foreign_frames":0,"transmit_s":1.0,"latency":{"frames":1000,"min_ns":4000.0,"mean_ns":9000.0,"max_ns":250000.0,"percentiles_ns":{"50":8000.0,"90":15000.0,"99":40000.0,"99.9":120000.0},"precision":0.01}}],"clock_error":null}],"dut_counters":{"1.rx_frames":1000000,"1.drops.ring_full":17}}');
CREATE TABLE metric (
	measurement_id INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	value DOUBLE NOT NULL, 
	unit TEXT NOT NULL, 
	better VARCHAR(16) NOT NULL, 
	CONSTRAINT pk_metric PRIMARY KEY (measurement_id, name), 
	CONSTRAINT fk_metric_measurement_id FOREIGN KEY(measurement_id) REFERENCES measurement (id)
);
INSERT INTO "metric" VALUES(1,'throughput_fps',237952.5,'frames/s','higher');
INSERT INTO "metric" VALUES(1,'throughput_bps',121831680.0,'bit/s','higher');
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
INSERT INTO "run" VALUES('00000000-0000-4000-8000-000000000001','OLD_RUN','finished',1,1700000000.0,1700000010.0,'0.1.0','ringroad 0.4.0',NULL);
CREATE TABLE run_dut (
	id INTEGER NOT NULL, 
	run_id VARCHAR(64) NOT NULL, 
	position INTEGER NOT NULL, 
	label TEXT NOT NULL, 
	driver TEXT NOT NULL, 
	CONSTRAINT pk_run_dut PRIMARY KEY (id), 
	CONSTRAINT fk_run_dut_run_id FOREIGN KEY(run_id) REFERENCES run (run_id)
);
INSERT INTO "run_dut" VALUES(1,'00000000-0000-4000-8000-000000000001',0,'ovs','ovs');
CREATE TABLE run_head (
	run_id VARCHAR(64) NOT NULL, 
	sequence INTEGER NOT NULL, 
	raw TEXT NOT NULL, 
	CONSTRAINT pk_run_head PRIMARY KEY (run_id, sequence), 
	CONSTRAINT fk_run_head_run_id FOREIGN KEY(run_id) REFERENCES run (run_id)
);
INSERT INTO "run_head" VALUES('00000000-0000-4000-8000-000000000001',0,'{"schema_version":1,"run_id":"00000000-0000-4000-8000-000000000001","name":"OLD_RUN","scenario":{"name":"OLD_RUN","topology":"P2P","physical":"veth","flows":64,"bidirectional":true,"repetitions":1},"command":["ringroad-lab","run","OLD_RUN","--seed","it''s fabricated"],"lab_version":"0.1.0","generator_version":"ringroad 0.4.0","started_at":1700000000.0,"ended_at":1700000010.0,"state":"finished","failure":"","duts":[{"label":"ovs","driver":"ovs","settings":{"batch":32},"versions":{"ovs":"3.1.0"},"ports":{"1":"veth, AF_XDP native, copy","2":"veth, AF_XDP native, copy"}}],"facts":{"machine":{"board":"fabricated","hypervisor":"none"},"processor":{"model":"Fabricated 9000","cores":"2","governor":"performance"},"kernel":{"release":"6.1.0-56-amd64","command line":"quiet mitigations=auto"}},"link_bps":null,"ceilings":[{"transport":"veth","frame":{"name":"64","parts":[[64,1]]},"ceiling_fps":7000000.0,"clock_error":0.00002}],"noise_floors":[{"dut":"ovs","method":"throughput","frame_name":"64","metric":"throughput_fps","pairs":5,"ratio_interval":[0.985,1.016]}],"measurements":[],"series":[{"name":"processor time","subject":"ovs-vswitchd","unit":"%","points":[[1700000000.0,95.27549237953228],[1700000005.0,85.10138051478843]]},{"name":"memory","subject":"ovs-vswitchd","unit":"bytes","points":[[1700000000.0,50990870.17418388],[1700000005.0,50898982.12957747]]},{"name":"steal time","subject":"machine","unit":"%","points":[[1700000000.0,3.9095578363365777],[1700000005.0,4.732340106813079]]}],"logs":[{"source":"ovs-vswitchd","text":"bridge br0: added interface\n","is_cut":false}],"deviations":["Trials last 1 s; RFC 2544 section 24 asks for 60 s.","One frame size of IMIX is not standard."],"labels":{"version":"3.1.0","branch":"main"},"supersedes":null}');
CREATE TABLE run_label (
	run_id VARCHAR(64) NOT NULL, 
	name TEXT NOT NULL, 
	value TEXT NOT NULL, 
	CONSTRAINT pk_run_label PRIMARY KEY (run_id, name), 
	CONSTRAINT fk_run_label_run_id FOREIGN KEY(run_id) REFERENCES run (run_id)
);
INSERT INTO "run_label" VALUES('00000000-0000-4000-8000-000000000001','version','3.1.0');
INSERT INTO "run_label" VALUES('00000000-0000-4000-8000-000000000001','branch','main');
CREATE INDEX ix_run_name ON run (name);
CREATE INDEX ix_run_started_at ON run (started_at);
CREATE INDEX ix_run_supersedes ON run (supersedes);
CREATE INDEX ix_baseline_name ON baseline (name);
CREATE INDEX ix_judgement_run_id ON judgement (run_id);
CREATE INDEX ix_measurement_dut ON measurement (dut);
CREATE UNIQUE INDEX uq_measurement_run_id_number ON measurement (run_id, number);
CREATE INDEX ix_run_dut_driver ON run_dut (driver);
CREATE INDEX ix_run_dut_label ON run_dut (label);
CREATE INDEX ix_run_dut_run_id ON run_dut (run_id);
CREATE INDEX ix_run_label_name_value ON run_label (name, value);
CREATE INDEX ix_dut_version_version ON dut_version (version);
CREATE INDEX ix_metric_name ON metric (name);
COMMIT;
